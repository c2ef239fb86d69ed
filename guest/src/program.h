/* The program that this process is part of: a tree of processes, which share one lease. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "credential.h"

/* Adds what its processes know to a HELLO, for a server that takes it. */
bool gf_program_add(struct gf_extensions *extensions);
/* Reads what WELCOME says of the lease, at its very end. */
bool gf_program_take(const char *data, size_t size);
