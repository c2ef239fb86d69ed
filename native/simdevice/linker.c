/* cuLink*: the engine joins the inputs. */
#include "module.h"
#include "link.h"
#include <stdlib.h>

#define MESSAGE_SIZE 4096

struct link_state {
    struct sim_object object;
    struct sim_link *link;
    struct gf_jit_log log;
};

static void destroy(void *pointer) {
    struct link_state *state = pointer;
    sim_link_destroy(state->link);
    free(state);
}

static CUresult acquire(CUlinkState handle, struct link_state **state) {
    SIM_TRY(sim_enter());
    *state = sim_acquire(SIM_HANDLE(handle), SIM_LINK);
    return *state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
    struct sim_context *context;
    struct gf_jit_log log;
    SIM_TRY(sim_context_current(&context));
    SIM_REQUIRE(out);
    SIM_TRY(gf_jit_options(count, options, values, &log));
    struct link_state *state = calloc(1, sizeof *state);
    if (!state)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state->log = log;
    CUresult result = sim_link_create(&state->link);
    if (result != CUDA_SUCCESS) {
        free(state);
        return result;
    }
    if (!sim_handle_open(state, SIM_LINK, context, destroy)) {
        destroy(state);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = SIM_POINTER(CUlinkState, state);
    return CUDA_SUCCESS;
}

static CUresult add(struct link_state *state, CUjitInputType type, const void *data, size_t size) {
    char message[MESSAGE_SIZE] = "";
    uint64_t started = sim_now_ns();
    switch ((int)type) {
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_FATBINARY:
    case CU_JIT_INPUT_CUBIN:
        break;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        return CUDA_ERROR_NOT_SUPPORTED; /* they hold machine code */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = sim_link_add(state->link, data, size, message, sizeof message);
    sim_jit_report(&state->log, message, started);
    return result;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int count, CUjit_option *options, void **values) {
    struct link_state *state;
    struct gf_jit_log unused;
    SIM_REQUIRE(data && size);
    SIM_TRY(gf_jit_options(count, options, values, &unused));
    SIM_TRY(acquire(handle, &state));
    CUresult result = add(state, type, data, size);
    sim_release(state);
    return result;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                          CUjit_option *options, void **values) {
    void *data;
    size_t size;
    SIM_TRY(sim_enter());
    SIM_REQUIRE(path);
    SIM_TRY(gf_file_read(path, &data, &size));
    CUresult result = cuLinkAddData_v2(state, type, data, size, path, count, options, values);
    free(data);
    return result;
}

CUresult cuLinkComplete(CUlinkState handle, void **image, size_t *size) {
    struct link_state *state;
    const void *linked;
    size_t linked_size;
    char message[MESSAGE_SIZE] = "";
    SIM_REQUIRE(image);
    SIM_TRY(acquire(handle, &state));
    uint64_t started = sim_now_ns();
    const struct sim_config *config = sim_config_get();
    CUresult result = sim_link_complete(state->link, config->cc_major * 10 + config->cc_minor, &linked,
                                        &linked_size, message, sizeof message);
    sim_jit_report(&state->log, message, started);
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
