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

static bool read_token(char *token, size_t size) {
    const char *text = getenv("GPUFERRY_TOKEN"), *file = getenv("GPUFERRY_TOKEN_FILE");
    token[0] = '\0';
    if (text != NULL && text[0] != '\0') {
        snprintf(token, size, "%s", text);
        return true;
    }
    if (file == NULL || file[0] == '\0') {
        return true; /* a monitor without a token refuses or not: its business */
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, token, size - 1);
    if (got < 0) {
        gf_error("cannot read the token from GPUFERRY_TOKEN_FILE=%s: %s", file, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    while (got > 0 && strchr(" \t\r\n", token[got - 1]) != NULL) {
        got--;
    }
    token[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

static void derive(const char *token, const char *label, uint8_t key[GF_HASH_SIZE]) {
    struct gf_hmac hmac;
    gf_hmac_init(&hmac, token, strlen(token));
    gf_hmac_update(&hmac, label, strlen(label));
    gf_hmac_final(&hmac, key);
}

bool gf_credential_read(struct gf_credential *credential) {
    memset(credential, 0, sizeof *credential);
    if (!read_token(credential->token, sizeof credential->token)) {
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
