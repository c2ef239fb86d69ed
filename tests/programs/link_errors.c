// What is wrong with a link is said by the call that can know it: bad PTX, names defined twice and
// prototypes that differ when the input is added, undefined names at the end. After an input that is refused
// the link stays usable, after its end it does not.
#include "link.h"

// it takes one argument more than is declared
static const char other_ptx[] = PTX_HEAD
    ".visible .func (.param .b32 result) twice (.param .b32 value, .param .b32 more)\n{\n    ret;\n}\n";

static CUresult add(CUlinkState state, CUjitInputType type, const void *data, size_t size) {
    return cuLinkAddData(state, type, (void *)data, size, "input", 0, NULL, NULL);
}

static void wrong_arguments(void) {
    static CUjit_option unknown = (CUjit_option)1000, wall = CU_JIT_WALL_TIME, target = CU_JIT_TARGET;
    CUlinkState state;
    void *value = NULL, *image;
    size_t size;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(0, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(1, NULL, NULL, &state));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkCreate(1, &unknown, &value, &state));
    FAILS(CUDA_ERROR_INVALID_HANDLE, ADD_PTX(NULL, caller_ptx, "none"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkComplete(NULL, &image, &size));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(NULL));
    OK(cuLinkCreate(0, NULL, NULL, &state));
    FAILS(CUDA_ERROR_INVALID_VALUE, add(state, CU_JIT_INPUT_PTX, NULL, 10));
    FAILS(CUDA_ERROR_INVALID_VALUE, add(state, CU_JIT_INPUT_PTX, caller_ptx, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, add(state, (CUjitInputType)99, caller_ptx, sizeof caller_ptx));
    // where messages go and what the link is for belongs to cuLinkCreate
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)caller_ptx,
                                                  sizeof caller_ptx, "input", 1, &wall, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)caller_ptx,
                                                  sizeof caller_ptx, "input", 1, &target, &value));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkComplete(state, NULL, &size));
    // a text ends where it ends
    OK(add(state, CU_JIT_INPUT_PTX, caller_ptx, (size_t)1 << 40));
    FAILS(CUDA_ERROR_INVALID_IMAGE, add(state, CU_JIT_INPUT_CUBIN, caller_ptx, (size_t)1 << 40));
    OK(cuLinkDestroy(state));
}

static void wrong_inputs(void) {
    static const char text[] = "this is no image at all";
    CUlinkState state;
    CUmodule loaded;
    void *image;
    size_t size;
    OK(cuLinkCreate(0, NULL, NULL, &state));
    FAILS(CUDA_ERROR_INVALID_PTX, add(state, CU_JIT_INPUT_PTX, broken_ptx, sizeof broken_ptx));
    FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, add(state, CU_JIT_INPUT_PTX, newer_ptx, sizeof newer_ptx));
    FAILS(CUDA_ERROR_INVALID_PTX, add(state, CU_JIT_INPUT_PTX, text, sizeof text));
    FAILS(CUDA_ERROR_INVALID_IMAGE, add(state, CU_JIT_INPUT_CUBIN, text, sizeof text));
    FAILS(CUDA_ERROR_INVALID_PTX, add(state, CU_JIT_INPUT_FATBINARY, text, sizeof text));
    FAILS(CUDA_ERROR_INVALID_IMAGE, add(state, CU_JIT_INPUT_CUBIN, caller_ptx, sizeof caller_ptx));
    OK(ADD_PTX(state, caller_ptx, "caller"));
    OK(ADD_PTX(state, function_ptx, "function"));
    OK(ADD_PTX(state, variable_ptx, "variable"));
    OK(cuLinkComplete(state, &image, &size));
    FAILS(CUDA_ERROR_INVALID_VALUE, ADD_PTX(state, broken_ptx, "late"));
    OK(cuModuleLoadData(&loaded, image));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(state));
}

static void wrong_names(void) {
    struct logs logs;
    CUlinkState state;
    CUmodule loaded;
    void *image;
    size_t size;
    prepare(&logs);
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    OK(ADD_PTX(state, caller_ptx, "the_caller"));
    FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete(state, &image, &size));
    EXPECT(strstr(logs.error, "shared_word") && strstr(logs.error, "the_caller"));
    FAILS(CUDA_ERROR_INVALID_VALUE, ADD_PTX(state, variable_ptx, "the_variable"));
    FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete(state, &image, &size));
    OK(cuLinkDestroy(state));

    prepare(&logs);
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    OK(ADD_PTX(state, caller_ptx, "the_caller"));
    OK(ADD_PTX(state, variable_ptx, "the_variable"));
    FAILS(CUDA_ERROR_INVALID_SOURCE, ADD_PTX(state, other_ptx, "the_other"));
    EXPECT(strstr(logs.error, "Prototype doesn't match for 'twice'") && strstr(logs.error, "the_other"));
    OK(ADD_PTX(state, function_ptx, "the_function"));
    FAILS(CUDA_ERROR_INVALID_SOURCE, ADD_PTX(state, function_ptx, "another_function"));
    EXPECT(strstr(logs.error, "the_function") && strstr(logs.error, "another_function"));
    OK(cuLinkComplete(state, &image, &size));
    OK(cuModuleLoadData(&loaded, image));
    EXPECT(run_go(loaded) == 42);
    OK(cuLinkDestroy(state));
}

int main(void) {
    CUlinkState state;
    start();
    wrong_arguments();
    wrong_inputs();
    wrong_names();
    OK(cuCtxSetCurrent(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuLinkCreate(0, NULL, NULL, &state));
    return check_failed;
}
