/* Device memory that other processes open. Its pages are private until the first handle of it is asked for;
 * then they become those of a file, while nothing but kernels is at work. */
#include "context.h"
#include "execute.h"
#include "ipc_memory.h"
#include "memory.h"
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of each allocation with a handle: the same one is given again. */
struct offer {
    struct offer *next;
    uint64_t base, id; /* of the range */
    struct sim_ipc_handle handle;
};

/* Of each opened handle. */
struct import {
    struct import *next;
    uint64_t base, secret;
    enum sim_ipc_kind kind;
    struct sim_context *context;
    unsigned opened;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the scheduler's and a tree's */
static struct offer *offers;
static struct import *imports;

struct exchange {
    struct sim_range range;
    int file;
    bool done;
};

static bool take_file(struct sim_range *range, void *argument) {
    struct exchange *exchange = argument;
    if (range->id != exchange->range.id)
        return false;
    range->file = exchange->file;
    return true;
}

static bool leave_file(struct sim_range *range, void *unused) {
    (void)unused;
    range->file = 0;
    return true;
}

/* The pages become those of the file. Nothing is at work but kernels, of which those that write there
 * meanwhile wait. */
static void exchange_pages(void *argument) {
    struct exchange *exchange = argument;
    uint64_t base = exchange->range.base, size = sim_round_up(exchange->range.size, SIM_PAGE);
    void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, exchange->file, 0);
    if (copy == MAP_FAILED)
        return;
    sim_faults_hold();
    bool held = mprotect((void *)base, size, PROT_READ) == 0;
    exchange->done = held && sim_ranges_change(&sim_memory, base, take_file, exchange);
    if (exchange->done) {
        memcpy(copy, (void *)base, size);
        exchange->done = mmap((void *)base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                              exchange->file, 0) != MAP_FAILED;
        if (!exchange->done)
            sim_ranges_change(&sim_memory, base, leave_file, NULL);
    }
    if (held && !exchange->done)
        mprotect((void *)base, size, PROT_READ | PROT_WRITE);
    sim_faults_release();
    munmap(copy, size);
}

/* The range goes on in a file that the handle names. Lock held. */
static CUresult offer(const struct sim_range *range, enum sim_ipc_kind kind, struct sim_ipc_handle *handle) {
    struct exchange exchange = {.range = *range};
    for (struct offer **link = &offers; *link;) {
        struct offer *one = *link;
        if (one->base == range->base && one->id == range->id) {
            *handle = one->handle;
            return CUDA_SUCCESS;
        }
        if (one->base == range->base) { /* of memory that was freed */
            *link = one->next;
            free(one);
        } else {
            link = &one->next;
        }
    }
    struct offer *made = calloc(1, sizeof *made);
    exchange.file = made ? sim_ipc_new(kind, range->device, sim_round_up(range->size, SIM_PAGE), handle) : -1;
    if (exchange.file >= 0)
        sim_scheduler_alone(exchange_pages, &exchange);
    if (!exchange.done) {
        if (exchange.file >= 0)
            close(exchange.file);
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct offer){.next = offers, .base = range->base, .id = range->id};
    made->handle = *handle;
    offers = made;
    return CUDA_SUCCESS;
}

CUresult sim_ipc_offer(uint64_t address, enum sim_range_kind wanted, enum sim_ipc_kind kind,
                       struct sim_ipc_handle *handle) {
    struct sim_range range;
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (sim_ranges_find(&sim_memory, address, &range) && range.kind == wanted && !range.freeing)
        result = offer(&range, kind, handle);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer) {
    struct sim_context *context;
    struct sim_ipc_handle handle;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out);
    SIM_TRY(sim_ipc_offer(pointer, SIM_RANGE_DEVICE, SIM_IPC_MEMORY, &handle));
    memcpy(out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

/* Memory of a pool is freed as such, not closed. */
static CUresult free_pooled(uint64_t pointer) {
    return sim_ipc_close(pointer, SIM_IPC_POOLED) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The file's memory as a range of this process, which has the file from then on. */
static CUresult map(int file, uint64_t size, enum sim_ipc_kind kind, struct sim_device *device,
                    struct sim_context *context, uint64_t *base) {
    struct sim_range *range = sim_memory_range(SIM_RANGE_IMPORTED, device, context, size, 0);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->base = sim_pages_reserve(size, SIM_GRANULARITY, 0);
    range->file = file;
    range->free_it = kind == SIM_IPC_POOLED ? free_pooled : NULL;
    if (range->base &&
        mmap((void *)range->base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
            MAP_FAILED &&
        sim_ranges_insert(&sim_memory, range)) {
        *base = range->base;
        return CUDA_SUCCESS;
    }
    if (range->base)
        sim_pages_free(range->base, size);
    free(range);
    return CUDA_ERROR_MAP_FAILED;
}

/* The import of that memory or, with no secret, at that address. Those whose context has ended are forgotten.
 * Lock held. */
static struct import **find(uint64_t secret, uint64_t base) {
    struct sim_range range;
    struct import **link = &imports;
    while (*link) {
        struct import *one = *link;
        if (!sim_ranges_find(&sim_memory, one->base, &range) || range.base != one->base ||
            range.kind != SIM_RANGE_IMPORTED) {
            *link = one->next;
            free(one);
        } else if (secret ? one->secret == secret : one->base == base) {
            break;
        } else {
            link = &one->next;
        }
    }
    return link;
}

CUresult sim_ipc_import(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind,
                        struct sim_context *context, uint64_t *base) {
    int file;
    uint64_t size;
    struct sim_device *device;
    SIM_TRY(sim_ipc_open(handle, kind, &file, &device, &size));
    if (kind == SIM_IPC_MEMORY && device != context->device && !sim_config_get()->peers) {
        close(file);
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    struct import *import = *find(handle->secret, 0);
    if (import) {
        close(file);
        *base = import->base;
        import->opened += import->context == context;
        pthread_mutex_unlock(&lock);
        return import->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    import = calloc(1, sizeof *import);
    CUresult result = import ? map(file, size, kind, device, context, base) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *import = (struct import){imports, *base, handle->secret, kind, context, 1};
        imports = import;
    } else {
        close(file);
        free(import);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle opaque, unsigned int flags) {
    struct sim_context *context;
    struct sim_ipc_handle handle;
    uint64_t base;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(pointer && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    memcpy(&handle, &opaque, sizeof handle);
    SIM_TRY(sim_ipc_import(&handle, SIM_IPC_MEMORY, context, &base));
    *pointer = base;
    return CUDA_SUCCESS;
}

bool sim_ipc_close(uint64_t pointer, enum sim_ipc_kind kind) {
    struct sim_range range;
    if (sim_ranges_find(&sim_memory, pointer, &range))
        sim_device_drain(range.device); /* what runs may use it */
    pthread_mutex_lock(&lock);
    struct import **link = find(0, pointer), *import = *link;
    if (import && import->kind != kind)
        import = NULL;
    if (import && --import->opened == 0) {
        *link = import->next;
        sim_memory_delete(pointer);
        free(import);
    }
    pthread_mutex_unlock(&lock);
    return import != NULL;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    struct sim_context *context;
    SIM_TRY(sim_context_current(&context));
    return sim_ipc_close(pointer, SIM_IPC_MEMORY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
