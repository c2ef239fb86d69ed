/* The wait that freeing memory is in CUDA, as far as it cannot be left to what the program asks afterwards.
 */
#include "freeing.h"

#include "freed.h"
#include "host_call.h"
#include "objects.h"
#include "session.h"
#include "shared.h"
#include "stream.h"
#include "window.h"

CUresult gf_wait_for_device(CUdevice device) {
    struct gf_table *table = &gf_tables[GF_HANDLE_CONTEXT];
    uint64_t through = gf_window_work();
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < atomic_load(&table->slots); i++) {
        const struct gf_context *each = gf_table_at(table, i);
        if (each != NULL && each->device == device && each->green == 0 && atomic_load(&each->active)) {
            uint64_t handle = atomic_load(&each->object.handle);
            gf_host_calls_settle(handle);
            CUresult waited = gf_wait_for_context(handle);
            result = result == CUDA_SUCCESS ? waited : result;
        }
    }
    if (result == CUDA_SUCCESS && gf_session.device_count == 1) {
        gf_window_synchronized(through);
    }
    return result;
}

void gf_access_begins(void) {
    for (CUdevice device = 0; device < gf_session.device_count && gf_host_calls_pending(); device++) {
        gf_wait_for_device(device);
    }
}

/* Whether the program may see without a question that the device was not waited for. */
static bool is_seen(void) {
    return gf_host_calls_pending() || gf_shared_at_work() || atomic_load(&gf_session.watched);
}

CUresult gf_free_begins(CUdevice device) {
    gf_freed(device);
    return is_seen() ? gf_wait_for_device(device) : CUDA_SUCCESS;
}

CUresult gf_free_shared_begins(void) {
    CUresult result = CUDA_SUCCESS;
    bool seen = is_seen();
    for (CUdevice device = 0; device < gf_session.device_count; device++) {
        gf_freed(device);
        CUresult waited = seen ? gf_wait_for_device(device) : CUDA_SUCCESS;
        result = result == CUDA_SUCCESS ? waited : result;
    }
    return result;
}
