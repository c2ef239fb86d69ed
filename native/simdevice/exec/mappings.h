/* What the process may have: mappings (vm.max_map_count), private memory (RLIMIT_DATA), and why the system
 * gives no more. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: guards have their share of the process's mappings; the others are the program's. `needed`: stacks
 * without guards are no use. */
bool sim_guards_take(uint32_t count, bool needed);
void sim_guards_give(uint32_t count);
/* Whether half of their share is gone. */
bool sim_guards_are_short(void);
/* False: stacks have their half of the private memory, used or not; the rest is the program's. */
bool sim_private_take(size_t size);
void sim_private_give(size_t size);
/* Whether the half of that is gone: what is left is for blocks without which a worker does nothing. */
bool sim_private_is_short(void);
/* What refuses memory now, and what to do about it. */
void sim_mapping_refused(char *reason, size_t size);
