// Two devices that reach each other: copies between them in every form, access that is enabled and disabled,
// with the errors of each, mapped memory and pools that both may use, and kernels of one on the memory of the
// other.
//
// suite: devices
#include "driver.h"

enum { COUNT = 1 << 14, BYTES = COUNT * 4, MIB = 1 << 20 };

static CUcontext primary[2];
static CUdeviceptr memory[2];
static CUfunction fill[2], affine[2];
static unsigned wanted[COUNT], back[COUNT];

static void use(int i) {
    QUIET(cuCtxSetCurrent(primary[i]));
}

static void begin(int i) {
    CUmodule loaded;
    OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    use(i);
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&fill[i], loaded, "fill"));
    OK(cuModuleGetFunction(&affine[i], loaded, "affine"));
    OK(cuMemAlloc(&memory[i], BYTES));
}

static void expect_filled(unsigned seed) {
    for (unsigned k = 0; k < COUNT; k++)
        wanted[k] = (k ^ seed) * 2654435761u;
}

static int holds_wanted(CUdeviceptr address) {
    memset(back, 0, sizeof back);
    QUIET(cuMemcpyDtoH(back, address, BYTES));
    return memcmp(back, wanted, BYTES) == 0;
}

static void fill_on(int i, unsigned seed, CUdeviceptr address) {
    unsigned count = COUNT;
    use(i);
    QUIET(LAUNCH(fill[i], COUNT / 256, 256, NULL, &address, &count, &seed));
    expect_filled(seed);
}

static void attributes(void) {
    int value = -1;
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceCanAccessPeer(&value, i, 1 - i));
        EXPECT(value == 1);
        OK(cuDeviceCanAccessPeer(&value, i, i));
        EXPECT(value == 0);
        OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, i, 1 - i));
        EXPECT(value == 0);
        OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, i, 1 - i));
        EXPECT(value == 1);
        CALL(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, i, 1 - i));
        printf("native atomics %d\n", value);
        CALL(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, i, 1 - i));
        printf("arrays %d\n", value);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceCanAccessPeer(NULL, 0, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&value, 0, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetP2PAttribute(&value, 99, 0, 1));
    CUatomicOperation operation = CU_ATOMIC_OPERATION_INTEGER_ADD;
    unsigned capabilities = 77;
    OK(cuDeviceGetP2PAtomicCapabilities(&capabilities, &operation, 1, 0, 1));
    printf("capabilities %u\n", capabilities);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAtomicCapabilities(&capabilities, &operation, 1, 0, 0));
}

// Of whole ranges, of boxes, by address alone; from a stream, and without enabling anything.
static void copies(void) {
    CUstream stream;
    CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    fill_on(0, 11, memory[0]);
    OK(cuMemcpyPeer(memory[1], primary[1], memory[0], primary[0], BYTES));
    use(1);
    EXPECT(holds_wanted(memory[1]));
    fill_on(1, 12, memory[1]);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    OK(cuMemcpyPeerAsync(memory[0], primary[0], memory[1], primary[1], BYTES, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(holds_wanted(memory[0]));
    fill_on(0, 13, memory[0]);
    OK(cuMemcpy(memory[1], memory[0], BYTES));
    OK(cuCtxSynchronize());
    use(1);
    EXPECT(holds_wanted(memory[1]));
    fill_on(1, 14, memory[1]);
    OK(cuMemcpyDtoD(memory[0], memory[1], BYTES));
    OK(cuCtxSynchronize());
    use(0);
    EXPECT(holds_wanted(memory[0]));
    fill_on(0, 15, memory[0]);
    box.srcDevice = memory[0];
    box.srcContext = primary[0];
    box.dstDevice = memory[1];
    box.dstContext = primary[1];
    box.srcPitch = box.dstPitch = box.WidthInBytes = 256;
    box.Height = BYTES / 256;
    box.srcHeight = box.dstHeight = box.Height;
    box.Depth = 1;
    OK(cuMemcpy3DPeer(&box));
    use(1);
    EXPECT(holds_wanted(memory[1]));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(memory[1], NULL, memory[0], primary[0], BYTES));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(memory[1], primary[1], memory[0], primary[0], BYTES + 4));
    use(1);
    OK(cuStreamDestroy(stream));
}

static void enabling(void) {
    CUcontext own;
    use(0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(primary[1], 1));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(NULL, 0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(primary[0], 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(primary[1]));
    OK(cuCtxCreate(&own, NULL, 0, 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(primary[0], 0));
    OK(cuCtxDestroy(own));
    use(0);
    OK(cuCtxEnablePeerAccess(primary[1], 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(primary[1], 0));
    // device 0 writes where device 1 has its memory, also in what that is given from now on
    fill_on(0, 21, memory[1]);
    OK(cuCtxSynchronize());
    use(1);
    EXPECT(holds_wanted(memory[1]));
    CUdeviceptr later = allocate(3 * MIB);
    fill_on(0, 22, later);
    OK(cuCtxSynchronize());
    use(1);
    EXPECT(holds_wanted(later));
    OK(cuMemFree(later));
    // the other way is another matter
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(primary[0]));
    OK(cuCtxEnablePeerAccess(primary[0], 0));
    fill_on(1, 23, memory[0]);
    OK(cuCtxSynchronize());
    use(0);
    EXPECT(holds_wanted(memory[0]));
    OK(cuCtxDisablePeerAccess(primary[1]));
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(primary[1]));
    OK(cuCtxEnablePeerAccess(primary[1], 0));
    OK(cuCtxDisablePeerAccess(primary[1]));
}

// What is enabled is a context, not its device: another one of that device is another matter, and so is one
// that was made when it had ended.
static void enabling_contexts(void) {
    CUcontext theirs[2];
    CUdeviceptr memory_of_second = 0;
    for (int i = 0; i < 2; i++)
        OK(cuCtxCreate(&theirs[i], NULL, 0, 1));
    OK(cuMemAlloc(&memory_of_second, BYTES));
    use(0);
    OK(cuCtxEnablePeerAccess(theirs[0], 0));
    OK(cuCtxEnablePeerAccess(theirs[1], 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(theirs[0], 0));
    OK(cuCtxDisablePeerAccess(theirs[0]));
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(theirs[0]));
    fill_on(0, 24, memory_of_second);
    OK(cuCtxSynchronize());
    EXPECT(holds_wanted(memory_of_second));
    for (int i = 0; i < 2; i++)
        OK(cuCtxDestroy(theirs[i]));
    OK(cuCtxCreate(&theirs[1], NULL, 0, 1));
    use(0);
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(theirs[1]));
    OK(cuCtxEnablePeerAccess(theirs[1], 0));
    OK(cuCtxDestroy(theirs[1]));
}

// Memory of device 1, mapped for device 0 too.
static void mappings(void) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc access[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    unsigned long long flags[2] = {9, 9};
    int ordinal = -1;
    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * MIB, access, 2));
    for (int i = 0; i < 2; i++) {
        OK(cuMemGetAccess(&flags[i], &access[i].location, address));
        EXPECT(flags[i] == access[i].flags);
    }
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    EXPECT(ordinal == 1);
    fill_on(0, 31, address);
    OK(cuCtxSynchronize());
    EXPECT(holds_wanted(address));
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(address, 2 * MIB, access, 1));
    OK(cuMemGetAccess(&flags[0], &access[0].location, address));
    EXPECT(flags[0] == 0);
    OK(cuMemGetAccess(&flags[1], &access[1].location, address));
    EXPECT(flags[1] == CU_MEM_ACCESS_FLAGS_PROT_READ);
    access[0].location.id = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, 2 * MIB, access, 1));
    OK(cuMemUnmap(address, 2 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, 2 * MIB));
}

static void pools(void) {
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = 9;
    CUdeviceptr address = 0;
    use(1);
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemAllocFromPoolAsync(&address, BYTES, pool, NULL));
    OK(cuStreamSynchronize(NULL));
    fill_on(0, 41, address);
    OK(cuCtxSynchronize());
    use(1);
    EXPECT(holds_wanted(address));
    OK(cuMemFreeAsync(address, NULL));
    CUmemAccessDesc both[2] = {access, access}; // a wrong one, and what comes before it is not done either
    both[1].location.id = 1;
    both[0].flags = both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, both, 2));
    OK(cuMemPoolGetAccess(&flags, pool, &access.location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
    OK(cuMemPoolDestroy(pool));
}

int main(void) {
    OK(cuInit(0));
    attributes();
    begin(0);
    begin(1);
    copies();
    enabling();
    enabling_contexts();
    mappings();
    pools();
    return check_failed;
}
