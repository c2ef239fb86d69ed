/* What a program asks for of a GPU beside memory: time, and company. */
#pragma once
#include <stdbool.h>

#include "credential.h"

/* Adds what the environment says to a HELLO. False: it makes no sense, or the server knows nothing of it; it
 * was said. */
bool gf_portion_add(struct gf_extensions *extensions);
