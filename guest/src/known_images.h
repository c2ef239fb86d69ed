/* Images that the server holds: a request names one by its hash, and the bytes go only to a server that
 * lacks them. */
#pragma once
#include "channel.h"

/* Starts a call and waits for it, as gf_call_parts does, after the image that it names was sent if need be.
 * The reply begins with a u32 that says whether the server held the image; `call` says operation and reply
 * alone. */
CUresult gf_call_with_image(struct gf_call *call, const struct iovec *parts, int count,
                            const uint8_t hash[GF_HASH_SIZE], const void *data, size_t size);
/* The server holds this one. */
void gf_image_remember(const uint8_t hash[GF_HASH_SIZE]);
/* Sends the image unless the server holds it. */
CUresult gf_image_lend(const uint8_t hash[GF_HASH_SIZE], const void *data, size_t size);
