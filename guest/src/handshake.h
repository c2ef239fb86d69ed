/* Frames of a handshake, before there is a channel: for the first connection and for a resumed one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "gpuferry/frames.h"
#include "transport.h"

/* The monitor may have to start an API server first, which compiles or loads a driver. */
#define GF_HANDSHAKE_TIMEOUT_MS 120000

/* From /dev/urandom; false with errno. */
bool gf_random_bytes(uint8_t *data, size_t size);
/* A whole handshake frame: its body, to be freed; NULL with errno. */
void *gf_read_frame(struct gf_transport *from, struct gf_header *header, int timeout_ms);
/* Why gf_read_frame returned NULL, for a message. */
const char *gf_handshake_cause(void);
