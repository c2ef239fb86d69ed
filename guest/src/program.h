/* The program that this process is part of: a tree of processes, which share one lease. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "credential.h"

/* Adds what its processes know to a HELLO, for a server that takes it. */
bool gf_program_add(struct gf_extensions *extensions);
/* What WELCOME says of the lease at its end: the size of what comes before that; `size` if nothing is said.
 */
size_t gf_program_membership(const char *body, size_t size);
