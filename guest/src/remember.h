/* Answers of the server that stay right until something is set that they depend on (`remember` and `forget`
 * in specs/cuda/driver). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The answer to the same request in the same context, if it is remembered. Otherwise `asked` is for
 * gf_remember. */
bool gf_recall(uint16_t op, const void *request, size_t size, void *reply, size_t reply_size,
               uint64_t *asked);
/* An answer to what was asked then; one that may be out of date is not kept. */
void gf_remember(uint16_t op, const void *request, size_t size, const void *reply, size_t reply_size,
                 uint64_t asked);
/* Something was set: no answer from before counts any more. */
void gf_forget(void);
