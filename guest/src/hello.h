/* What a program says of itself and of what it wants: HELLO and its extensions. */
#pragma once
#include <stdbool.h>

#include "credential.h"
#include "queue.h"

/* Fills all of HELLO but its proof; false: no random bytes. */
bool gf_hello_fill(struct gf_hello *hello, const struct gf_credential *credential);
/* False: the environment asks for something that makes no sense; it was said. */
bool gf_hello_extend(struct gf_extensions *extensions, const struct gf_credential *credential,
                     const struct gf_queue *queue);
