// Module variables through the driver API: size, address, copies, use by a kernel; two modules have two
// copies.
#include "driver.h"

int main(void) {
    CUdeviceptr words, constants, twin_words;
    size_t words_size = 0, constants_size = 0;
    unsigned initial[64], weights[16], result[64], again[64];
    CUmodule twin;
    CUdeviceptr missing;
    start();
    for (unsigned i = 0; i < 64; i++)
        initial[i] = i + 100;
    for (unsigned i = 0; i < 16; i++)
        weights[i] = i * i;
    OK(cuModuleLoadData(&twin, kernels_ptx));
    OK(cuModuleGetGlobal(&words, &words_size, module, "global_words"));
    OK(cuModuleGetGlobal(&constants, &constants_size, module, "constant_words"));
    OK(cuModuleGetGlobal(&twin_words, NULL, twin, "global_words"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&missing, NULL, module, "no_such_variable"));
    EXPECT(words_size == sizeof initial);
    EXPECT(constants_size == sizeof weights);
    EXPECT(words != twin_words);
    OK(cuMemcpyHtoD(words, initial, sizeof initial));
    OK(cuMemcpyHtoD(constants, weights, sizeof weights));
    CUdeviceptr out = allocate(sizeof result);
    OK(LAUNCH(kernel("mix_globals"), 1, 64, NULL, &out));
    OK(cuMemcpyDtoH(result, out, sizeof result));
    OK(cuMemcpyDtoH(again, words, sizeof again));
    unsigned wrong = 0;
    for (unsigned i = 0; i < 64; i++)
        wrong += result[i] != initial[i] * 3 + weights[i % 16];
    EXPECT(wrong == 0);
    EXPECT(memcmp(result, again, sizeof result) == 0);
    OK(cuMemcpyDtoH(again, twin_words, sizeof again));
    EXPECT(again[0] == 0 && again[63] == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(words));
    OK(cuModuleUnload(twin));
    return check_failed;
}
