// The runtime API without nvcc: PTX through cudaLibraryLoadData, as for toolkits whose wheels carry no
// compiler.
//
// compile: -lcudart
#include <cuda_runtime_api.h>

#include "check.h"
#include "kernels_ptx.h"

int main(void) {
    enum { COUNT = 5000 };
    static unsigned words[COUNT];
    unsigned *device, count = COUNT, seed = 12, wrong = 0;
    int runtime = 0;
    cudaLibrary_t library;
    cudaKernel_t fill;
    RT_OK(cudaRuntimeGetVersion(&runtime));
    RT_OK(cudaLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    RT_OK(cudaLibraryGetKernel(&fill, library, "fill"));
    RT_OK(cudaMalloc((void **)&device, sizeof words));
    RT_OK(cudaMemset(device, 0, sizeof words));
    void *arguments[] = {&device, &count, &seed};
    RT_OK(cudaLaunchKernel((const void *)fill, (dim3){20, 1, 1}, (dim3){256, 1, 1}, arguments, 0, NULL));
    RT_OK(cudaDeviceSynchronize());
    RT_OK(cudaMemcpy(words, device, sizeof words, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < COUNT; i++)
        wrong += words[i] != (i ^ seed) * 2654435761u;
    EXPECT(wrong == 0);
    digest("words", words, sizeof words);
    RT_OK(cudaFree(device));
    RT_OK(cudaLibraryUnload(library));
    return check_failed;
}
