/* How a kernel that goes wrong ends its grid: the first error counts, and the fiber is left for good. */
#include "engine.h"
#include "mappings.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 200 }; /* characters of a kernel's name */

_Thread_local struct sim_worker *sim_current_worker __attribute__((tls_model("initial-exec")));

void sim_run_fail(struct sim_run *run, CUresult error, const char *format, ...) {
    int none = CUDA_SUCCESS;
    if (!atomic_compare_exchange_strong(&run->error, &none, (int)error))
        return;
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    const char *name = run->grid->kernel->info->name; /* a template's may leave no room for the reason */
    sim_message(SIM_LOG_ERROR, "kernel %.*s%s: %s", NAME, name, strlen(name) > NAME ? "..." : "", reason);
}

void sim_run_overflowed(struct sim_run *run) {
    sim_run_fail(run, CUDA_ERROR_HARDWARE_STACK_ERROR,
                 "stack overflow: CU_LIMIT_STACK_SIZE is %zu bytes of a thread (cuCtxSetLimit raises it)",
                 run->grid->stack_limit);
}

void sim_run_refused(struct sim_run *run, const char *what) {
    char reason[256];
    sim_mapping_refused(reason, sizeof reason);
    sim_run_fail(run, CUDA_ERROR_OUT_OF_MEMORY, "no memory for %s: %s", what, reason);
}

void sim_worker_abort(struct sim_worker *worker) {
    sim_context_leave(worker->running, &worker->base);
}
