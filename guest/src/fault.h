/* The handler for SIGSEGV of this library, which stays the first one whatever handlers the program sets:
 * those get all faults that are not of memory shared with the device. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* From now on faults are first told to `resolve`: whether the access may be made again. Also after the
 * program has set a handler by a way that this library does not see. */
void gf_fault_install(bool (*resolve)(uint64_t address, bool write));
