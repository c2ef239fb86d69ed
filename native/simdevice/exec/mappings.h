/* How many mappings the process may have (vm.max_map_count), and why the system gives no more memory. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: guards have their share of the process's mappings; the others are the program's. */
bool sim_guards_take(uint32_t count);
void sim_guards_give(uint32_t count);
/* What refuses memory now, and what to do about it. */
void sim_mapping_refused(char *reason, size_t size);
