// PTX texts that need each other, and a linker with logs, for the programs that link.
#ifndef LINK_H
#define LINK_H

#include "driver.h"

#define PTX_HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"

// go(word): *word = twice(shared_word)
static const char caller_ptx[] = PTX_HEAD ".extern .func (.param .b32 result) twice (.param .b32 value);\n"
                                          ".extern .global .align 4 .u32 shared_word;\n"
                                          ".visible .entry go(.param .u64 to)\n"
                                          "{\n"
                                          "    .reg .b32 %r<3>;\n"
                                          "    .reg .b64 %d<2>;\n"
                                          "    ld.param.u64 %d1, [to];\n"
                                          "    ld.global.u32 %r1, [shared_word];\n"
                                          "    {\n"
                                          "        .param .b32 value;\n"
                                          "        .param .b32 result;\n"
                                          "        st.param.b32 [value], %r1;\n"
                                          "        call (result), twice, (value);\n"
                                          "        ld.param.b32 %r2, [result];\n"
                                          "    }\n"
                                          "    st.global.u32 [%d1], %r2;\n"
                                          "    ret;\n"
                                          "}\n";

static const char function_ptx[] = PTX_HEAD ".visible .func (.param .b32 result) twice (.param .b32 value)\n"
                                            "{\n"
                                            "    .reg .b32 %r<2>;\n"
                                            "    ld.param.b32 %r1, [value];\n"
                                            "    add.u32 %r1, %r1, %r1;\n"
                                            "    st.param.b32 [result], %r1;\n"
                                            "    ret;\n"
                                            "}\n";

static const char variable_ptx[] = PTX_HEAD ".visible .global .align 4 .u32 shared_word = 21;\n";

static const char broken_ptx[] = PTX_HEAD ".visible .entry broken( {\n    ret;\n}\n";
static const char newer_ptx[] = ".version 99.0\n.target sm_80\n.address_size 64\n";

// Adds a text as NVIDIA's samples do, with its NUL.
#define ADD_PTX(state, text, name)                                                                           \
    cuLinkAddData((state), CU_JIT_INPUT_PTX, (void *)(text), strlen(text) + 1, (name), 0, NULL, NULL)

struct logs {
    char error[4096], info[4096];
    CUjit_option options[5];
    void *values[5];
};

enum { LOG_ERROR_SIZE = 1, LOG_INFO_SIZE = 3, LOG_WALL_TIME = 4 };

static inline void prepare(struct logs *logs) {
    static const CUjit_option options[5] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                            CU_JIT_WALL_TIME};
    memset(logs, 0, sizeof *logs);
    memcpy(logs->options, options, sizeof options);
    logs->values[0] = logs->error;
    logs->values[LOG_ERROR_SIZE] = (void *)sizeof logs->error;
    logs->values[2] = logs->info;
    logs->values[LOG_INFO_SIZE] = (void *)sizeof logs->info;
}

// Three errors are told in a buffer for eight bytes, and nothing behind it is touched.
static inline void overflow(struct logs *logs) {
    CUlinkState state;
    prepare(logs);
    logs->values[LOG_ERROR_SIZE] = (void *)8;
    memset(logs->error, '#', sizeof logs->error);
    OK(cuLinkCreate(5, logs->options, logs->values, &state));
    for (int i = 0; i < 3; i++)
        FAILS(CUDA_ERROR_INVALID_PTX, ADD_PTX(state, broken_ptx, "broken"));
    EXPECT(logs->error[8] == '#');
    OK(cuLinkDestroy(state));
}

// What go() of a loaded image stores.
static inline unsigned run_go(CUmodule loaded) {
    CUfunction go = NULL;
    CUdeviceptr word = allocate(4);
    unsigned value = 0;
    QUIET(cuModuleGetFunction(&go, loaded, "go"));
    QUIET(LAUNCH(go, 1, 1, NULL, &word));
    QUIET(cuMemcpyDtoH(&value, word, 4));
    QUIET(cuMemFree(word));
    return value;
}

#endif
