/* Another connection for a session that lost its own (WIRE.md 9). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuferry/frames.h"
#include "transport.h"

/* Whether the program's user wants sessions that outlive their connection (GPUFERRY_ON_LOSS). */
bool gf_resume_wanted(void);
/* Remembers where the session was granted, and the key that only its two ends know. */
void gf_resume_prepare(const char *address, const uint8_t key[GF_HASH_SIZE]);
/* What MOVED says, if it is genuine: from here on the session is there, under another number and key. */
bool gf_resume_moved(const struct gf_moved *moved, const char *address);
/* Connects and proves that the session is ours, again and again until the time is over or `given_up` says so.
 * In `theirs` how many bytes of ours the server has; or false with the cause in `why`. */
bool gf_resume_connect(struct gf_transport *transport, uint64_t received, uint64_t *theirs,
                       bool (*given_up)(void), char *why, size_t why_size);
