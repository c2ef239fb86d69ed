#include "redirect.h"

#include <string.h>

#include "wire/sha256.h"

bool gf_redirect_take(struct gf_credential *credential, const struct gf_greeting *greeting,
                      const struct gf_hello *hello, const struct gf_header *header, const char *body,
                      char address[GF_ADDRESS_MAX]) {
    const struct gf_redirect *redirect = (const struct gf_redirect *)body;
    size_t size = header->size - sizeof *header;
    if (size < sizeof *redirect ||
        size != sizeof *redirect + redirect->ticket_size + redirect->address_size ||
        redirect->ticket_size > sizeof credential->ticket || redirect->address_size == 0 ||
        redirect->address_size >= GF_ADDRESS_MAX) {
        return false;
    }
    uint8_t proof[GF_HASH_SIZE], mask[GF_HASH_SIZE];
    gf_credential_mac(credential, GF_PROOF_REDIRECT, greeting, hello, body + sizeof proof,
                      size - sizeof proof, proof);
    if (!gf_digest_equal(proof, redirect->proof)) {
        return false;
    }
    gf_credential_mac(credential, GF_KEY_REDIRECT, greeting, hello, NULL, 0, mask);
    for (size_t i = 0; i < sizeof mask; i++) {
        credential->server_key[i] = redirect->key[i] ^ mask[i];
    }
    credential->kind = GF_BY_TICKET;
    credential->ticket_size = redirect->ticket_size;
    memcpy(credential->ticket, redirect + 1, redirect->ticket_size);
    memcpy(address, body + size - redirect->address_size, redirect->address_size);
    address[redirect->address_size] = '\0';
    return true;
}
