#include "credential.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "wire/sha256.h"

#define TENANT_PREFIX "gft."

/* Its first line, without the blanks around it: what secrets are kept in likes to add some. Empty: there is
 * none. */
static bool take_token(char token[GF_TOKEN_MAX], const char *text) {
    static const char blanks[] = " \t\r";
    size_t size = strcspn(text, "\n"), skipped = strspn(text, blanks);
    text += skipped;
    size -= skipped;
    while (size > 0 && strchr(blanks, text[size - 1]) != NULL) {
        size--;
    }
    if (size >= GF_TOKEN_MAX - 1) {
        gf_error("the token is longer than %d bytes, the most that one may have", GF_TOKEN_MAX - 2);
        return false;
    }
    memmove(token, text, size);
    token[size] = '\0';
    return true;
}

/* As far as there is room; a pipe gives it in pieces. -1 with errno: it cannot be read. */
static ssize_t read_some(int fd, char *text, size_t room) {
    size_t size = 0;
    ssize_t got = 1;
    while (got > 0 && size < room) {
        got = read(fd, text + size, room - size);
        size += got > 0 ? (size_t)got : 0;
        got = got < 0 && errno == EINTR ? 1 : got;
    }
    return got < 0 ? got : (ssize_t)size;
}

static bool read_token(char token[GF_TOKEN_MAX]) {
    const char *text = getenv("GPUFERRY_TOKEN"), *file = getenv("GPUFERRY_TOKEN_FILE");
    token[0] = '\0';
    if (text != NULL && !take_token(token, text)) {
        return false;
    }
    if (token[0] != '\0' || file == NULL || file[0] == '\0') {
        return true; /* a monitor without a token refuses or not: its business */
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read_some(fd, token, GF_TOKEN_MAX - 1);
    if (got < 0) {
        gf_error("cannot read the token from GPUFERRY_TOKEN_FILE=%s: %s", file, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    token[got > 0 ? got : 0] = '\0';
    return got >= 0 && take_token(token, token); /* no room is on some stacks for another */
}

static void derive(const char *token, const char *label, uint8_t key[GF_HASH_SIZE]) {
    struct gf_hmac hmac;
    gf_hmac_init(&hmac, token, strlen(token));
    gf_hmac_update(&hmac, label, strlen(label));
    gf_hmac_final(&hmac, key);
}

bool gf_credential_read(struct gf_credential *credential) {
    memset(credential, 0, sizeof *credential);
    if (!read_token(credential->token)) {
        return false;
    }
    const char *tenant = credential->token + strlen(TENANT_PREFIX);
    if (strncmp(credential->token, TENANT_PREFIX, strlen(TENANT_PREFIX)) != 0) {
        return true;
    }
    const char *dot = strchr(tenant, '.');
    if (dot == NULL || (size_t)(dot - tenant) >= sizeof credential->tenant) {
        return true; /* it only looks like one */
    }
    credential->kind = GF_BY_TENANT;
    memcpy(credential->tenant, tenant, (size_t)(dot - tenant));
    derive(credential->token, GF_KEY_CLIENT, credential->client_key);
    derive(credential->token, GF_KEY_SERVER, credential->server_key);
    return true;
}

void gf_credential_prove(const struct gf_credential *credential, const struct gf_greeting *greeting,
                         const struct gf_hello *hello, const struct gf_extensions *extensions,
                         uint8_t proof[GF_HASH_SIZE]) {
    struct gf_hmac hmac;
    uint8_t stored_key[GF_HASH_SIZE];
    if (credential->kind == GF_BY_TENANT) {
        gf_sha256(credential->client_key, sizeof credential->client_key, stored_key);
        gf_hmac_init(&hmac, stored_key, sizeof stored_key);
    } else if (credential->kind == GF_BY_TICKET) {
        gf_hmac_init(&hmac, credential->server_key, sizeof credential->server_key);
    } else {
        gf_hmac_init(&hmac, credential->token, strlen(credential->token));
    }
    gf_hmac_update(&hmac, GF_PROOF_GUEST, strlen(GF_PROOF_GUEST));
    gf_hmac_update(&hmac, greeting->nonce, sizeof greeting->nonce);
    gf_hmac_update(&hmac, hello->nonce, sizeof hello->nonce);
    gf_hmac_update(&hmac, hello, offsetof(struct gf_hello, proof));
    gf_hmac_update(&hmac, extensions->data, extensions->size);
    gf_hmac_final(&hmac, proof);
    for (size_t i = 0; credential->kind == GF_BY_TENANT && i < GF_HASH_SIZE; i++) {
        proof[i] ^= credential->client_key[i];
    }
}

void gf_credential_mac(const struct gf_credential *credential, const char *label,
                       const struct gf_greeting *greeting, const struct gf_hello *hello, const void *rest,
                       size_t size, uint8_t mac[GF_HASH_SIZE]) {
    struct gf_hmac hmac;
    if (credential->kind == GF_BY_TOKEN) {
        gf_hmac_init(&hmac, credential->token, strlen(credential->token));
    } else {
        gf_hmac_init(&hmac, credential->server_key, sizeof credential->server_key);
    }
    gf_hmac_update(&hmac, label, strlen(label));
    gf_hmac_update(&hmac, greeting->nonce, sizeof greeting->nonce);
    gf_hmac_update(&hmac, hello->nonce, sizeof hello->nonce);
    if (size > 0) {
        gf_hmac_update(&hmac, rest, size);
    }
    gf_hmac_final(&hmac, mac);
}

bool gf_extension_add(struct gf_extensions *extensions, uint16_t kind, const void *value, size_t size) {
    struct gf_extension_head head = {.kind = kind, .size = (uint16_t)size};
    if (size > sizeof extensions->data - extensions->size - sizeof head) {
        return false;
    }
    memcpy(extensions->data + extensions->size, &head, sizeof head);
    memcpy(extensions->data + extensions->size + sizeof head, value, size);
    extensions->size += sizeof head + size;
    return true;
}
