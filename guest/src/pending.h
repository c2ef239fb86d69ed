/* Device-to-host copies that the program did not wait for: their data is on its way into page-locked memory.
 */
#pragma once
#include "channel.h"

/* Starts such a copy: the operation asks for it by `request`, `rows` is where its data goes. */
CUresult gf_pending_start(uint16_t op, const void *request, size_t size, const struct gf_rows *rows);
/* Whether there are any. */
bool gf_pending_any(void);
/* Waits until no such copy touches the range any more: before its memory is read here or goes away. */
void gf_pending_wait(const void *base, uint64_t size);
