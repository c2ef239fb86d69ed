/* What this process proves itself with: a monitor's token, a tenant's token, or a ticket that a registry gave
 * it (specs/WIRE.md 2). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuferry/frames.h"

#define GF_TOKEN_MAX      4096
#define GF_EXTENSIONS_MAX (16u << 10)

struct gf_credential {
    enum { GF_BY_TOKEN, GF_BY_TENANT, GF_BY_TICKET } kind;
    char token[GF_TOKEN_MAX];
    char tenant[sizeof((struct gf_hello *)0)->tenant]; /* NUL-padded; the tenant's token says which */
    uint8_t client_key[GF_HASH_SIZE];
    uint8_t server_key[GF_HASH_SIZE]; /* with a ticket: its session key, which proves both sides */
    uint8_t ticket[GF_TICKET_MAX];
    size_t ticket_size;
};

/* The extensions of a HELLO. */
struct gf_extensions {
    size_t size;
    uint8_t data[GF_EXTENSIONS_MAX];
};

/* From GPUFERRY_TOKEN or GPUFERRY_TOKEN_FILE; false: the file cannot be read, which was said. */
bool gf_credential_read(struct gf_credential *credential);
/* The proof that goes into HELLO, which is complete but for it. */
void gf_credential_prove(const struct gf_credential *credential, const struct gf_greeting *greeting,
                         const struct gf_hello *hello, const struct gf_extensions *extensions,
                         uint8_t proof[GF_HASH_SIZE]);
/* HMAC over label, both nonces and the rest, with the key that the server knows as well. */
void gf_credential_mac(const struct gf_credential *credential, const char *label,
                       const struct gf_greeting *greeting, const struct gf_hello *hello, const void *rest,
                       size_t size, uint8_t mac[GF_HASH_SIZE]);
/* False if it does not fit. */
bool gf_extension_add(struct gf_extensions *extensions, uint16_t kind, const void *value, size_t size);
