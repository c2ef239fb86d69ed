/* cuCtxSetLimit's limits that the engine heeds; for the whole process. */
#pragma once
#include <stddef.h>

void sim_set_heap_limit(size_t bytes); /* CU_LIMIT_MALLOC_HEAP_SIZE */
size_t sim_heap_limit(void);
void sim_set_stack_limit(size_t bytes); /* CU_LIMIT_STACK_SIZE, per thread */
size_t sim_stack_limit(void);
