/* cuCtxSetLimit's limits that the engine heeds, as a grid brings them with it, and the heap of device code.
 */
#pragma once
#include <stddef.h>

#define SIM_STACK_LIMIT     1024                /* CU_LIMIT_STACK_SIZE, per thread */
#define SIM_STACK_LIMIT_MAX ((size_t)512 << 10) /* as much local memory as a thread may have */
#define SIM_HEAP_LIMIT      ((size_t)8 << 20)   /* CU_LIMIT_MALLOC_HEAP_SIZE, of all kernels of the process */

/* Memory for a kernel, or NULL when the heap would hold more than `limit` bytes, or the alignment is no power
 * of two or above 64 KiB. */
void *sim_heap_take(size_t size, size_t alignment, size_t limit);
/* 0 if the pointer is none that sim_heap_take gave and that was not given back. */
int sim_heap_give(void *pointer);
/* Nothing is left of what was taken. Only when no kernel runs. */
void sim_heap_reset(void);
void sim_heap_forget(void); /* after a fork, in the child */
