// Managed variables of modules and libraries: one address for program and device, initial values, writes of
// either side, attributes, and what they are not.
#include "driver.h"

static const char code[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                           ".visible .global .attribute(.managed) .align 4 .u32 total = 40;\n"
                           ".visible .global .attribute(.managed) .align 8 .b8 table[8192];\n"
                           ".visible .global .align 4 .u32 plain = 3;\n"
                           ".visible .entry count() {\n"
                           "  .reg .u32 %r<3>; .reg .u64 %rd<2>;\n"
                           "  ld.global.u32 %r1, [total];\n"
                           "  add.u32 %r1, %r1, 1;\n"
                           "  st.global.u32 [total], %r1;\n"
                           "  mov.u64 %rd1, table;\n"
                           "  ld.global.u32 %r2, [%rd1+8188];\n"
                           "  add.u32 %r2, %r2, %r1;\n"
                           "  st.global.u32 [%rd1], %r2;\n"
                           "  ret;\n"
                           "}\n";

static void use(CUfunction count, unsigned *total, unsigned *table) {
    EXPECT(*total == 40 && table[0] == 0 && table[2047] == 0);
    *total = 100;
    table[2047] = 7;
    OK(LAUNCH(count, 1, 1, NULL, NULL));
    OK(cuCtxSynchronize());
    EXPECT(*total == 101 && table[0] == 108 && table[2047] == 7);
    table[2047]++;
    OK(LAUNCH(count, 1, 1, NULL, NULL));
    OK(cuCtxSynchronize());
    EXPECT(*total == 102 && table[0] == 110);
    unsigned copy = 0, value = 5;
    OK(cuMemcpyDtoH(&copy, (CUdeviceptr)total, 4));
    EXPECT(copy == 102);
    OK(cuMemcpyHtoD((CUdeviceptr)total, &value, 4));
    EXPECT(*total == 5);
    OK(cuMemsetD32((CUdeviceptr)table, 9, 2048));
    EXPECT(table[0] == 9 && table[2047] == 9);
}

static void facts(CUdeviceptr total) {
    unsigned type = 0, managed = 0;
    void *host = NULL;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, total));
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, total));
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, total));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && managed == 1 && host == (void *)total);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(total));
}

int main(void) {
    CUmodule loaded;
    CUlibrary library;
    CUkernel kernel_of_library;
    CUfunction count;
    CUdeviceptr total = 0, table = 0, plain = 0, again = 0;
    size_t size = 0;
    unsigned managed = 1;
    OK(cuInit(0));
    OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetManaged(&total, &size, library, "total")); // as the runtime does, without a context
    EXPECT(size == 4 && *(unsigned *)total == 40);
    start();
    OK(cuLibraryGetManaged(&table, &size, library, "table"));
    EXPECT(size == 8192);
    OK(cuLibraryGetKernel(&kernel_of_library, library, "count"));
    use((CUfunction)kernel_of_library, (unsigned *)total, (unsigned *)table);
    facts(total);
    OK(cuLibraryGetGlobal(&again, &size, library, "total"));
    EXPECT(again == total);
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&plain, &size, library, "plain"));
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&plain, &size, library, "none"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLibraryGetManaged(NULL, NULL, library, "total"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLibraryGetManaged(&plain, &size, library, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetManaged(&plain, &size, NULL, "total"));
    OK(cuLibraryUnload(library));

    OK(cuModuleLoadData(&loaded, code));
    OK(cuModuleGetGlobal(&total, NULL, loaded, "total"));
    OK(cuModuleGetGlobal(&table, &size, loaded, "table"));
    OK(cuModuleGetGlobal(&plain, NULL, loaded, "plain"));
    OK(cuModuleGetFunction(&count, loaded, "count"));
    use(count, (unsigned *)total, (unsigned *)table);
    facts(total);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
    EXPECT(managed == 0);
    OK(cuModuleUnload(loaded));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, total));
    return check_failed;
}
