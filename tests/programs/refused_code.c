// What no kernel on the device can run is refused when it is loaded as a module, or linked, by its name, in
// the call that loads it: instructions that the device does not have, functions that nobody defines, kernels
// that launch kernels. It is refused though another kernel of the same text could run. So is PTX that is
// none.
#include "link.h"

#define KERNEL(name, body) ".visible .entry " name "(.param .u64 to)\n{\n" body "    ret;\n}\n"
#define GOOD KERNEL("good", "    .reg .b64 %d;\n    ld.param.u64 %d, [to];\n    st.global.u32 [%d], 7;\n")

static const char good[] = PTX_HEAD GOOD;

static const struct {
    const char *says, *text;
} refused[] = {
    {"wgmma.fence", PTX_HEAD GOOD KERNEL("bad", "    wgmma.fence.sync.aligned;\n")},
    {"tcgen05.fence", PTX_HEAD GOOD KERNEL("bad", "    tcgen05.fence::before_thread_sync;\n")},
    {"nonsense", PTX_HEAD GOOD KERNEL("bad", "    .reg .b32 %r<3>;\n    nonsense.u32 %r1, %r2;\n")},
    {"%r3", PTX_HEAD GOOD KERNEL("bad", "    .reg .b32 %r<3>;\n    add.u32 %r1, %r2, %r3;\n")},
    {"mul", PTX_HEAD GOOD KERNEL("bad", "    .reg .b32 %r<3>;\n    mul.lo.u32 %r1, %r2;\n")},
    {"add",
     PTX_HEAD GOOD KERNEL("bad", "    .reg .u32 %r<3>;\n    .reg .f32 %f;\n    add.f32 %f, %f, %r1;\n")},
    {"line 13", PTX_HEAD GOOD KERNEL("bad", "    add.u32 ,;\n")},
    {"cudaLaunchDeviceV2", PTX_HEAD
     ".extern .func (.param .b32 status) cudaLaunchDeviceV2(.param .b64 what, .param .b64 stream);\n" GOOD
         KERNEL("bad", "    .param .b32 status; .param .b64 what; .param .b64 stream;\n"
                       "    st.param.b64 [what], 0;\n    st.param.b64 [stream], 0;\n"
                       "    call (status), cudaLaunchDeviceV2, (what, stream);\n")},
    {"nobody_knows",
     PTX_HEAD ".extern .func nobody_knows();\n" GOOD KERNEL("bad", "    call nobody_knows, ();\n")},
};
enum { REFUSED = sizeof refused / sizeof *refused, INSTRUCTIONS = 7 };

static void loading(const char *text, const char *says) {
    CUmodule module;
    CUlibrary library;
    struct logs logs;
    prepare(&logs);
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, text, 5, logs.options, logs.values));
    EXPECT(strstr(logs.error, says) != NULL);
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, text));
    OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0)); // which is loaded when it is used
    OK(cuLibraryUnload(library));
}

static void linking(unsigned which) {
    CUlinkState state;
    struct logs logs;
    void *image;
    size_t size;
    prepare(&logs);
    OK(cuLinkCreate(5, logs.options, logs.values, &state));
    if (which < INSTRUCTIONS) {
        FAILS(CUDA_ERROR_INVALID_PTX, ADD_PTX(state, refused[which].text, "input"));
    } else {
        OK(ADD_PTX(state, refused[which].text, "input"));
        FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete(state, &image, &size));
    }
    EXPECT(strstr(logs.error, refused[which].says) != NULL);
    OK(cuLinkDestroy(state));
}

int main(void) {
    CUmodule module;
    CUfunction function;
    start();
    for (unsigned i = 0; i < REFUSED; i++) {
        printf("%s\n", refused[i].says);
        loading(refused[i].text, refused[i].says);
        linking(i);
    }
    // the context is sound, and the same kernel runs where it is alone
    CUdeviceptr word = allocate(4);
    unsigned value = 0;
    OK(cuModuleLoadData(&module, good));
    OK(cuModuleGetFunction(&function, module, "good"));
    QUIET(LAUNCH(function, 1, 1, NULL, &word));
    QUIET(cuMemcpyDtoH(&value, word, 4));
    EXPECT(value == 7);
    return check_failed;
}
