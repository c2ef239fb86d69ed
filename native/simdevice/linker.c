/* cuLink*: the engine joins the inputs. Logs and time add up over the calls of a link, as CUDA says. */
#include "module.h"
#include "link.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_SIZE 4096

/* A CUjit_target: the compute capability, and above it what kind of architecture. */
enum { TARGET_KIND_SHIFT = 16, OLDEST_TARGET = 30, NEWEST_TARGET = 130 };

struct link_state {
    struct sim_object object;
    struct sim_link *link;
    struct gf_jit_log log; /* points into the caller's option values until the link is destroyed */
    pthread_mutex_t lock;
    unsigned unnamed; /* inputs so far that got a name here */
    CUresult over;    /* it was completed, well or not: what every further try is told */
};

static void destroy(void *pointer) {
    struct link_state *state = pointer;
    pthread_mutex_destroy(&state->lock);
    sim_link_destroy(state->link);
    free(state);
}

static CUresult acquire(CUlinkState handle, struct link_state **state) {
    SIM_TRY(sim_enter());
    *state = sim_acquire(SIM_HANDLE(handle), SIM_LINK);
    return *state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* What the options say of the result. */
struct wishes {
    int target;
    unsigned most_registers;
};

static CUresult read_wishes(unsigned count, const CUjit_option *options, void *const *values,
                            struct wishes *wishes) {
    const struct sim_config *config = sim_config_get();
    *wishes = (struct wishes){.target = config->cc_major * 10 + config->cc_minor};
    for (unsigned i = 0; i < count; i++) {
        uintptr_t value = (uintptr_t)values[i];
        if (options[i] == CU_JIT_MAX_REGISTERS) {
            wishes->most_registers = (unsigned)value;
        } else if (options[i] == CU_JIT_TARGET) {
            value &= (1u << TARGET_KIND_SHIFT) - 1;
            SIM_REQUIRE(value >= OLDEST_TARGET && value < NEWEST_TARGET);
            wishes->target = (int)value;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
    struct sim_context *context;
    struct gf_jit_log log;
    struct wishes wishes;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out);
    SIM_TRY(gf_jit_options(count, options, values, &log));
    SIM_TRY(read_wishes(count, options, values, &wishes));
    struct link_state *state = calloc(1, sizeof *state);
    if (!state)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state->log = log;
    CUresult result = sim_link_create(wishes.target, wishes.most_registers, &state->link);
    if (result != CUDA_SUCCESS) {
        free(state);
        return result;
    }
    pthread_mutex_init(&state->lock, NULL);
    if (!sim_handle_open(state, SIM_LINK, context, destroy)) {
        destroy(state);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUlinkState, state);
    return CUDA_SUCCESS;
}

static CUresult kind_of(CUjitInputType type, enum sim_image_kind *kind) {
    switch ((int)type) {
    case CU_JIT_INPUT_PTX:
        *kind = SIM_IMAGE_PTX;
        return CUDA_SUCCESS;
    case CU_JIT_INPUT_FATBINARY:
        *kind = SIM_IMAGE_FATBIN;
        return CUDA_SUCCESS;
    case CU_JIT_INPUT_CUBIN:
        *kind = SIM_IMAGE_CUBIN;
        return CUDA_SUCCESS;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        *kind = SIM_IMAGE_OBJECT;
        return CUDA_SUCCESS;
    case CU_JIT_INPUT_NVVM:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What a step took and said, on a line of its own: the last one has no end. Lock held. */
static void report(struct link_state *state, const char *message, uint64_t started_ns) {
    char line[MESSAGE_SIZE + 1];
    const char *before = state->log.error_length ? "\n" : "";
    int size = *message ? snprintf(line, sizeof line, "%s%s", before, message) : 0;
    gf_jit_append(&state->log, line, (size_t)size, "", 0,
                  (float)((double)(sim_now_ns() - started_ns) * 1e-6));
}

static CUresult add(struct link_state *state, CUjitInputType type, const void *data, size_t size,
                    const char *name) {
    enum sim_image_kind kind;
    char message[MESSAGE_SIZE] = "", number[32];
    uint64_t started = sim_now_ns();
    CUresult result = kind_of(type, &kind);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return result;
    pthread_mutex_lock(&state->lock);
    if (!name || !*name) {
        snprintf(number, sizeof number, "input %u", ++state->unnamed);
        name = number;
    }
    if (state->over != CUDA_SUCCESS)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_ERROR_NOT_SUPPORTED)
        snprintf(message, sizeof message, "%s: LTO-IR is read by NVIDIA's compiler alone; PTX is linked",
                 name);
    else
        result = sim_link_add(state->link, kind, data, size, name, message, sizeof message);
    report(state, message, started);
    pthread_mutex_unlock(&state->lock);
    return result;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int count, CUjit_option *options, void **values) {
    struct link_state *state;
    SIM_TRY(acquire(handle, &state));
    CUresult result = data && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = gf_jit_input_options(count, options, values);
    if (result == CUDA_SUCCESS)
        result = add(state, type, data, size, name);
    sim_release(state);
    return result;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                          CUjit_option *options, void **values) {
    void *data;
    size_t size;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(path && (unsigned)type < CU_JIT_NUM_INPUT_TYPES);
    SIM_TRY(gf_file_read(path, &data, &size));
    CUresult result = size ? cuLinkAddData_v2(state, type, data, size, path, count, options, values)
                           : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    return result;
}

CUresult cuLinkComplete(CUlinkState handle, void **image, size_t *size) {
    struct link_state *state;
    const void *linked;
    size_t linked_size;
    char message[MESSAGE_SIZE] = "";
    SIM_TRY(acquire(handle, &state));
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (image) {
        uint64_t started = sim_now_ns();
        pthread_mutex_lock(&state->lock);
        result = state->over;
        if (result == CUDA_SUCCESS) {
            result = sim_link_complete(state->link, &linked, &linked_size, message, sizeof message);
            if (result == CUDA_SUCCESS)
                state->over = CUDA_ERROR_INVALID_HANDLE;
            else if (result == CUDA_ERROR_UNKNOWN)
                state->over = result;
        }
        report(state, message, started);
        pthread_mutex_unlock(&state->lock);
    }
    if (result == CUDA_SUCCESS) {
        *image = (void *)linked;
        if (size)
            *size = linked_size;
    }
    sim_release(state);
    return result;
}

CUresult cuLinkDestroy(CUlinkState handle) {
    SIM_TRY(sim_enter());
    struct link_state *state = sim_handle_close(SIM_HANDLE(handle), SIM_LINK);
    if (!state)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_release(state);
    return CUDA_SUCCESS;
}
