/* Which operations this guest and its server lay out alike, settled in the handshake (specs/WIRE.md 2). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "credential.h"
#include "gpuferry/frames.h"

/* A function, and an operation without which it is not supported. */
struct gf_need {
    uint16_t function;
    uint16_t operation;
};
extern const struct gf_need gf_needs[];
extern const unsigned gf_need_count;

/* What HELLO says to a server that greets like this. `insist`: it is of another build, whatever it says. */
bool gf_operations_offer(const struct gf_greeting *greeting, bool insist, uint8_t spec_hash[GF_HASH_SIZE],
                         struct gf_extensions *extensions);
/* Whether OPERATIONS was offered last. */
bool gf_operations_offered(void);
/* Of what follows the images in WELCOME, the part that is about operations. */
size_t gf_operations_size(const char *data, size_t size);
/* Whether it takes what was added to the handshake since the first release. */
bool gf_operations_extended(void);
/* What follows the image hashes of WELCOME. False: malformed. */
bool gf_operations_agree(const char *data, size_t size);
/* Whether the server lays out this operation as we do: for those that no function depends on. */
bool gf_operation_agreed(uint16_t operation);
/* Whether the server counts calls of this function. */
bool gf_operations_counted(uint16_t wire_id);
/* As its handshake says it, for messages. */
const char *gf_operations_server_version(void);
