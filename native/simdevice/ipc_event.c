/* Records are numbered, in a page that the processes share. That one is complete is written into one of
 * several slots, for records of different streams are complete in any order. A process that ends with a
 * record under way completes it by that. */
#include "ipc_event.h"
#include "ipc.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 64

struct records {
    _Atomic uint64_t last; /* number of records so far */
    struct {
        _Atomic uint64_t done; /* the last of those with this slot that is complete */
        _Atomic uint32_t process;
    } slots[SLOTS];
};

struct sim_ipc_event {
    _Atomic unsigned references; /* its CUevent, and its operations */
    bool own;                    /* made in this process */
    int file;
    struct records *records;
    struct sim_ipc_handle handle;
};

struct event_op {
    struct sim_op op;
    struct sim_ipc_event *event;
    uint64_t number;
};

static CUresult event_new(int file, struct sim_ipc_event **out) {
    struct sim_ipc_event *event = calloc(1, sizeof *event);
    void *records = mmap(NULL, sizeof *event->records, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!event || records == MAP_FAILED) {
        if (records != MAP_FAILED)
            munmap(records, sizeof *event->records);
        close(file);
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->references = 1;
    event->file = file;
    event->records = records;
    *out = event;
    return CUDA_SUCCESS;
}

CUresult sim_ipc_event_new(const struct sim_device *device, struct sim_ipc_event **event) {
    struct sim_ipc_handle handle;
    int file = sim_ipc_new(SIM_IPC_EVENT, device, sizeof(struct records), &handle);
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_TRY(event_new(file, event));
    (*event)->own = true;
    (*event)->handle = handle;
    return CUDA_SUCCESS;
}

CUresult sim_ipc_event_open(const CUipcEventHandle *opaque, struct sim_ipc_event **event) {
    struct sim_ipc_handle handle;
    struct sim_device *device;
    uint64_t size;
    int file;
    memcpy(&handle, opaque, sizeof handle);
    SIM_TRY(sim_ipc_open(&handle, SIM_IPC_EVENT, &file, &device, &size));
    if (size == sizeof(struct records))
        return event_new(file, event);
    close(file);
    return CUDA_ERROR_INVALID_VALUE;
}

void sim_ipc_event_end(struct sim_ipc_event *event) {
    if (atomic_fetch_sub(&event->references, 1) != 1)
        return;
    munmap(event->records, sizeof *event->records);
    close(event->file);
    free(event);
}

bool sim_ipc_event_handle(const struct sim_ipc_event *event, CUipcEventHandle *handle) {
    memcpy(handle, &event->handle, sizeof *handle);
    return event->own;
}

static bool is_done(const struct sim_ipc_event *event, uint64_t number) {
    const uint32_t process = atomic_load(&event->records->slots[number % SLOTS].process);
    return !number || (int64_t)(atomic_load(&event->records->slots[number % SLOTS].done) - number) >= 0 ||
           (process && kill((pid_t)process, 0) != 0 && errno == ESRCH);
}

static void await(const struct sim_ipc_event *event, uint64_t number, const struct sim_context *context) {
    struct timespec pause = {.tv_nsec = 20000};
    while (!is_done(event, number) && sim_context_check(context) == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
}

static CUresult run_wait(struct sim_op *op) {
    const struct event_op *waiting = (const struct event_op *)op;
    await(waiting->event, waiting->number, op->stream->context);
    return CUDA_SUCCESS;
}

static void let_go(struct sim_op *op) {
    sim_ipc_event_end(((struct event_op *)op)->event);
}

/* Run or not: nobody shall wait for it for ever. The record that had the slot before is waited for. */
static void complete(struct sim_op *op) {
    const struct event_op *record = (const struct event_op *)op;
    if (record->number > SLOTS)
        await(record->event, record->number - SLOTS, op->stream->context);
    atomic_store(&record->event->records->slots[record->number % SLOTS].done, record->number);
    let_go(op);
}

static const struct sim_op_class recording = {.drop = complete, .even_after_error = true, .may_block = true};
static const struct sim_op_class waiting = {.run = run_wait, .drop = let_go, .may_block = true};

static struct sim_op *op_new(struct sim_ipc_event *event, const struct sim_op_class *class) {
    struct event_op *op = sim_op_new(sizeof *op, class);
    if (!op)
        return NULL;
    atomic_fetch_add(&event->references, 1);
    op->event = event;
    op->number = atomic_load(&event->records->last);
    return &op->op;
}

struct sim_op *sim_ipc_event_record(struct sim_ipc_event *event) {
    struct event_op *op = (struct event_op *)op_new(event, &recording);
    if (!op)
        return NULL;
    op->number = atomic_fetch_add(&event->records->last, 1) + 1;
    atomic_store(&event->records->slots[op->number % SLOTS].process, (uint32_t)getpid());
    return &op->op;
}

struct sim_op *sim_ipc_event_wait(struct sim_ipc_event *event) {
    return op_new(event, &waiting);
}

bool sim_ipc_event_done(const struct sim_ipc_event *event) {
    return is_done(event, atomic_load(&event->records->last));
}

void sim_ipc_event_await(const struct sim_ipc_event *event, const struct sim_context *context) {
    await(event, atomic_load(&event->records->last), context);
}
