// What CUDA knows of a pointer: device, page-locked and foreign memory, ranges and contexts.
#include "driver.h"

// PyTorch asks whether memory is page-locked before it has a context.
static void without_context(void) {
    unsigned type = 9;
    int local = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *answers[] = {&type};
    OK(cuInit(0));
    OK(cuPointerGetAttributes(1, asked, answers, (CUdeviceptr)(uintptr_t)&local));
    EXPECT(type == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local));
}

int main(void) {
    without_context();
    start();
    unsigned type = 0, ordinal = 99, value = 0;
    CUcontext owner = NULL;
    CUdeviceptr base = 0, start_address = 0, memory = allocate(1 << 20);
    size_t size = 0, range = 0;
    void *pinned, *host_pointer = NULL;
    int local = 0, managed = 1;
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemsetD32(memory, 0x1234, 64));
    CUdeviceptr inside = memory + 100;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    EXPECT(owner == context);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    EXPECT(ordinal == 0);
    managed = -1; // all of it is written
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
    EXPECT(managed == 0);
    int domain = 0;
    OK(cuPointerGetAttribute(&domain, CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL, inside));
    EXPECT(domain == -1);
    unsigned mapped = 0xffffffff, sync = 0xffffffff, on = 1, off = 0;
    OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, inside));
    EXPECT(mapped == 1);
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
    EXPECT(sync == 0);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
    EXPECT(sync == 1);
    OK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    EXPECT(sync == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)(uintptr_t)&local));
    CUdeviceptr of_module = 0;
    unsigned long long ids[3] = {0};
    OK(cuModuleGetGlobal(&of_module, NULL, module, "global_words"));
    OK(cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    OK(cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, of_module));
    OK(cuPointerGetAttribute(&ids[2], CU_POINTER_ATTRIBUTE_BUFFER_ID, of_module + 4));
    EXPECT(ids[0] != 0 && ids[1] != 0 && ids[0] != ids[1] && ids[1] == ids[2]);
    OK(cuMemGetAddressRange(&base, &size, inside));
    EXPECT(base == memory && size == 1 << 20);
    OK(cuPointerGetAttribute(&start_address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    OK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    EXPECT(start_address == memory && range == size);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
    EXPECT(type == CU_MEMORYTYPE_HOST);
    OK(cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                             (CUdeviceptr)(uintptr_t)pinned));
    EXPECT(host_pointer == pinned);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local));
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *answers[] = {&type, &ordinal};
    OK(cuPointerGetAttributes(2, wanted, answers, memory));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && ordinal == 0);
    OK(cuPointerGetAttributes(2, wanted, answers, (CUdeviceptr)(uintptr_t)&local));
    EXPECT(type == 0 && (int)ordinal == CU_DEVICE_INVALID);
    CUpointer_attribute ranges[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *extents[] = {&start_address, &range};
    OK(cuPointerGetAttributes(2, ranges, extents, 16)); // where nothing is
    EXPECT(start_address == 0 && range == 0);
    CUpointer_attribute pointers[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *both[] = {&host_pointer, &base};
    OK(cuPointerGetAttributes(2, pointers, both, (CUdeviceptr)(uintptr_t)&local));
    EXPECT(host_pointer == &local && base == 0);
    OK(cuPointerGetAttributes(2, pointers, both, 0));
    EXPECT(host_pointer == NULL && base == 0);
    OK(cuPointerGetAttributes(2, pointers, both, memory));
    EXPECT(host_pointer == NULL && base == memory);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    CUpointer_attribute token = CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    void *told = &tokens;
    CALL(cuPointerGetAttributes(1, &token, &told, memory)); // there is nobody to whom they could be given
    static unsigned registered[64];
    unsigned stored = 0x4321;
    OK(cuMemHostRegister(registered, sizeof registered, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuPointerGetAttributes(2, pointers, both, (CUdeviceptr)(uintptr_t)&registered[5]));
    EXPECT(host_pointer == &registered[5] && base != 0);
    OK(LAUNCH(kernel("store"), 1, 1, NULL, &base, &stored));
    OK(cuCtxSynchronize());
    EXPECT(registered[5] == 0x4321);
    OK(cuMemHostUnregister(registered));
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)&local));
    OK(cuMemcpyDtoH(&value, inside, 4));
    EXPECT(value == 0x1234);
    return check_failed;
}
