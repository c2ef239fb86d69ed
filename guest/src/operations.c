#include "operations.h"

#include <stdio.h>
#include <string.h>

#include "functions.h"
#include "gpuferry/messages.h"
#include "gpuferry/operations.h"

enum peer { SAME_BUILD, FIRST_RELEASE, OTHER_BUILD };

static const struct gf_spoken spoken[] = {
#define SPOKEN(id, digest) {id, digest},
    GF_SPOKEN(SPOKEN)
#undef SPOKEN
};
static const uint16_t first_release[] = {
#define ID(id) id,
    GF_FIRST_RELEASE(ID)
#undef ID
};

static enum peer peer;
static _Atomic bool agreed[GF_OPERATION_LAST + 1];
static uint16_t last_function = GF_FUNCTION_LAST;
static char server_version[128] = GF_VERSION_TEXT;

static enum peer peer_of(const struct gf_greeting *greeting, bool insist) {
    if (greeting->build == 0) {
        return FIRST_RELEASE;
    }
    return greeting->build == GF_BUILD && !insist ? SAME_BUILD : OTHER_BUILD;
}

bool gf_operations_offer(const struct gf_greeting *greeting, bool insist, uint8_t spec_hash[GF_HASH_SIZE],
                         struct gf_extensions *extensions) {
    static const uint8_t ours[] = GF_SPEC_HASH, firsts[] = GF_FIRST_RELEASE_HASH;
    _Static_assert(sizeof ours == GF_HASH_SIZE && sizeof firsts == GF_HASH_SIZE, "spec hashes");
    peer = peer_of(greeting, insist);
    memcpy(spec_hash, peer == FIRST_RELEASE ? firsts : ours, GF_HASH_SIZE);
    return peer != OTHER_BUILD ||
           (gf_extension_add(extensions, GF_EXTENSION_OPERATIONS, spoken, sizeof spoken) &&
            gf_extension_add(extensions, GF_EXTENSION_VERSION, GF_VERSION_TEXT, strlen(GF_VERSION_TEXT)));
}

bool gf_operations_offered(void) {
    return peer == OTHER_BUILD;
}

bool gf_operations_extended(void) {
    return peer != FIRST_RELEASE;
}

static bool released_first(uint16_t id) {
    for (size_t i = 0; i < GF_FIRST_RELEASE_COUNT; i++) {
        if (first_release[i] == id) {
            return true;
        }
    }
    return false;
}

/* Functions that go by an operation which was not agreed on. */
static void note_lacking(void) {
    for (unsigned i = 0; i < gf_need_count; i++) {
        if (!agreed[gf_needs[i].operation]) {
            gf_function_lacks[gf_needs[i].function] = GF_LACKS_UNTOLD;
        }
    }
}

size_t gf_operations_size(const char *data, size_t size) {
    struct gf_agreement agreement;
    if (peer != OTHER_BUILD || size < sizeof agreement) {
        return 0;
    }
    memcpy(&agreement, data, sizeof agreement);
    size_t whole = sizeof agreement + agreement.bits_size + agreement.version_size;
    return whole < size ? whole : size;
}

bool gf_operations_agree(const char *data, size_t size) {
    struct gf_agreement agreement;
    const uint8_t *bits = (const uint8_t *)data + sizeof agreement;
    if (peer == OTHER_BUILD) {
        if (size < sizeof agreement) {
            return false;
        }
        memcpy(&agreement, data, sizeof agreement);
        if (agreement.bits_size != (GF_SPOKEN_COUNT + 7) / 8 ||
            size != sizeof agreement + agreement.bits_size + agreement.version_size) {
            return false;
        }
        last_function = agreement.last_function;
        snprintf(server_version, sizeof server_version, "%.*s", (int)agreement.version_size,
                 (const char *)bits + agreement.bits_size);
    } else if (size != 0) {
        return false;
    } else if (peer == FIRST_RELEASE) {
        last_function = GF_FIRST_RELEASE_FUNCTION_LAST;
        snprintf(server_version, sizeof server_version, "%s", GF_FIRST_RELEASE_TEXT);
    }
    for (size_t i = 0; i < GF_SPOKEN_COUNT; i++) {
        agreed[spoken[i].id] = peer == SAME_BUILD      ? true
                               : peer == FIRST_RELEASE ? released_first(spoken[i].id)
                                                       : bits[i / 8] >> (i % 8) & 1;
    }
    note_lacking();
    return true;
}

bool gf_operation_agreed(uint16_t operation) {
    return agreed[operation];
}

bool gf_operations_counted(uint16_t wire_id) {
    return wire_id <= last_function;
}

const char *gf_operations_server_version(void) {
    return server_version;
}
