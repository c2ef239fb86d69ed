/* A registry's answer to HELLO: go there, with this ticket. */
#pragma once
#include <stdbool.h>

#include "credential.h"
#include "gpuferry/frames.h"

#define GF_ADDRESS_MAX 512

/* Checks that the registry holds the token too. Then the credential becomes the ticket, which is good at
 * `address`; else false. */
bool gf_redirect_take(struct gf_credential *credential, const struct gf_greeting *greeting,
                      const struct gf_hello *hello, const struct gf_header *header, const char *body,
                      char address[GF_ADDRESS_MAX]);
