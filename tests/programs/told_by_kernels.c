// Addresses in a module that the program never asked for: a kernel writes them to where the program reads.
// They are good for copies, fills and questions, until the code is unloaded.
#include "driver.h"

static const char source[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".global .align 4 .u32 numbers[4] = {1, 2, 3, 4};\n"
    ".global .align 1 .b8 text[9] = {112, 108, 97, 99, 101, 46, 99, 117, 0};\n"
    ".const .align 4 .u32 factors[2] = {8, 9};\n"
    ".visible .entry tell(.param .u64 told) {\n"
    "  .reg .b64 %rd<3>;\n  ld.param.u64 %rd1, [told];\n"
    "  mov.u64 %rd2, numbers; cvta.global.u64 %rd2, %rd2; st.u64 [%rd1], %rd2;\n"
    "  mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2; st.u64 [%rd1+8], %rd2;\n"
    "  mov.u64 %rd2, factors; cvta.const.u64 %rd2, %rd2; st.u64 [%rd1+16], %rd2;\n  ret;\n}\n"
    ".visible .entry add(.param .u32 by) {\n"
    "  .reg .b32 %r<3>;\n  ld.param.u32 %r1, [by];\n"
    "  ld.global.u32 %r2, [numbers+8]; add.u32 %r2, %r2, %r1; st.global.u32 [numbers+8], %r2;\n  ret;\n}\n";

struct told {
    CUdeviceptr numbers, text, factors;
};

static struct told ask(CUfunction tell) {
    struct told *shared, told;
    CUdeviceptr there;
    OK(cuMemHostAlloc((void **)&shared, sizeof *shared, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&there, shared, 0));
    OK(LAUNCH(tell, 1, 1, NULL, &there));
    OK(cuCtxSynchronize());
    told = *shared;
    OK(cuMemFreeHost(shared));
    return told;
}

static void copies(const struct told *told, CUfunction add) {
    unsigned numbers[4] = {0}, ten = 10, *pinned;
    char text[9] = "";
    CUdeviceptr other = allocate(sizeof numbers);
    OK(cuMemcpyDtoH(text, told->text, sizeof text));
    EXPECT(strcmp(text, "place.cu") == 0);
    OK(cuMemcpyDtoH(text, told->text + 6, 3)); // one in the middle
    EXPECT(strcmp(text, "cu") == 0);
    OK(cuMemcpyHtoD(told->numbers + 4, &ten, sizeof ten));
    OK(LAUNCH(add, 1, 1, NULL, &ten));
    OK(cuMemcpyDtoH(numbers, told->numbers, sizeof numbers));
    EXPECT(numbers[0] == 1 && numbers[1] == 10 && numbers[2] == 13 && numbers[3] == 4);
    OK(cuMemsetD32(told->numbers, 5, 2));
    OK(cuMemcpy(other, told->numbers, sizeof numbers)); // which says of neither where it is
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)numbers, other, sizeof numbers));
    EXPECT(numbers[0] == 5 && numbers[1] == 5 && numbers[2] == 13);
    OK(cuMemAllocHost((void **)&pinned, sizeof numbers));
    OK(cuMemcpyDtoHAsync(pinned, told->numbers, sizeof numbers, NULL));
    OK(cuCtxSynchronize());
    EXPECT(memcmp(pinned, numbers, sizeof numbers) == 0);
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)numbers, told->factors, 8));
    EXPECT(numbers[0] == 8 && numbers[1] == 9);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(numbers, 8, 4)); // there is nothing
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(other));
}

static void questions(const struct told *told) {
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned type = 0;
    int ordinal = -1;
    OK(cuMemGetAddressRange(&base, &size, told->numbers + 4));
    EXPECT(base <= told->numbers && told->numbers + 16 <= base + size);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, told->text));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, told->text));
    EXPECT(ordinal == device);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(told->numbers));
}

int main(void) {
    CUmodule code;
    CUfunction tell, add;
    CUdeviceptr known;
    unsigned number;
    start();
    OK(cuModuleLoadData(&code, source));
    OK(cuModuleGetFunction(&tell, code, "tell"));
    OK(cuModuleGetFunction(&add, code, "add"));
    struct told told = ask(tell);
    copies(&told, add);
    questions(&told);
    OK(cuModuleGetGlobal(&known, NULL, code, "numbers"));
    EXPECT(known == told.numbers);
    OK(cuModuleUnload(code));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&number, told.numbers, sizeof number));
    OK(cuModuleLoadData(&code, source));
    OK(cuModuleGetFunction(&tell, code, "tell"));
    told = ask(tell);
    OK(cuMemcpyDtoH(&number, told.numbers + 12, sizeof number));
    EXPECT(number == 4);
    OK(cuModuleUnload(code));
    return check_failed;
}
