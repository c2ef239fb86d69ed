/* Bytes of which nobody made sure: decoding ends, reads nothing behind them and leaves no memory. Built with
 * sanitizers. Each file: an encoding of the type that its name begins with. Every beginning of it is
 * malformed, and what comes of it with some bytes changed is an answer. */
#include <stdio.h>

#include "codec_probe.h"

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* In memory of exactly this size, so that the sanitizer sees the end. */
static int decode(const struct type *type, const uint8_t *bytes, size_t size) {
    struct gf_decoder d;
    void *found;
    uint8_t *exact = malloc(size + (size == 0));
    memcpy(exact, bytes, size);
    begin(&d, exact, size);
    int status = type->take(&d, 1, false, &found);
    status = status == 0 ? gf_decoder_done(&d) : status;
    gf_decoder_end(&d);
    free(exact);
    return status;
}

static int broken(const struct type *type, const uint8_t *bytes, size_t size) {
    uint8_t changed[4096];
    if (decode(type, bytes, size) != 0) {
        return 1;
    }
    for (size_t shorter = 0; shorter < size; shorter++) {
        if (decode(type, bytes, shorter) != GF_MALFORMED) {
            return 2;
        }
    }
    memcpy(changed, bytes, size);
    changed[size] = 0;
    if (decode(type, changed, size + 1) != GF_MALFORMED) {
        return 3;
    }
    for (int i = 0; i < 500; i++) {
        memcpy(changed, bytes, size);
        for (uint64_t times = 1 + next() % 3; times > 0; times--) {
            changed[next() % size] = (uint8_t)next();
        }
        decode(type, changed, size);
    }
    return 0;
}

int main(int count, char **files) {
    uint8_t bytes[4095];
    for (int i = 1; i < count; i++) {
        const char *name = strrchr(files[i], '/') + 1;
        FILE *file = fopen(files[i], "rb");
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (const struct type *type = types; type < types + sizeof types / sizeof *types; type++) {
            if (strcspn(name, ".") == strlen(type->name) &&
                strncmp(name, type->name, strlen(type->name)) == 0) {
                int status = broken(type, bytes, size);
                if (status != 0) {
                    printf("%s: %d\n", name, status);
                    return 1;
                }
            }
        }
    }
    for (const struct type *type = types; type < types + sizeof types / sizeof *types; type++) {
        for (int i = 0; i < 500; i++) {
            size_t size = next() % 512;
            for (size_t at = 0; at < size; at++) {
                bytes[at] = next() % 3 == 0 ? (uint8_t)(next() % 5) : next() % 2 == 0 ? 0 : (uint8_t)next();
            }
            decode(type, bytes, size);
        }
    }
    return 0;
}
