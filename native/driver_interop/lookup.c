/* cuGetProcAddress: the newest binary interface of a name that is not newer than the version asked for. */
#include <string.h>
#include "driver_interop/interop.h"
#include "driver_interop/runtime_launch.h"

/* The first row of a name; its rows follow one another. */
static size_t first_row(const char *name) {
    size_t low = 0;
    size_t high = gf_symbol_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(gf_symbols[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

CUresult gf_get_proc_address(const char *symbol, void **function, int version, cuuint64_t flags, bool tells,
                             CUdriverProcAddressQueryResult *status) {
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (function)
        *function = NULL;
    if (!symbol || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (symbol[0] == '\0')
        gf_runtime_asks(1);
    size_t begin = first_row(symbol);
    size_t end = begin;
    int has_twin = 0;
    for (; end < gf_symbol_count && !strcmp(gf_symbols[end].name, symbol); end++)
        has_twin |= gf_symbols[end].per_thread;
    /* A function without a stream is the same with either default stream; of both, a thread's own goes first.
     */
    int per_thread = has_twin && flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct gf_symbol *found = NULL;
    for (size_t i = begin; i < end; i++)
        if (gf_symbols[i].per_thread == per_thread && gf_symbols[i].since <= version)
            found = &gf_symbols[i];
    if (status)
        *status = found          ? CU_GET_PROC_ADDRESS_SUCCESS
                  : begin == end ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                 : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (!found)
        return tells ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = gf_runtime_function(found->function);
    return CUDA_SUCCESS;
}
