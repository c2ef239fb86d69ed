// Memory that program and devices share is one for both devices: kernels of both write it and the program
// reads it, and to free it waits for both. Pinned memory is given to kernels of the second device. A
// blocking copy between devices is in the order of both. A cooperative launch on both devices is one call.
//
// suite: devices
// compile: -Wno-deprecated-declarations
#include "driver.h"

enum { COUNT = 64 };

static CUcontext primary[2];
static CUfunction affine[2], slow[2];
static CUstream stream[2];

static void begin(int i) {
    CUmodule loaded;
    OK(cuDevicePrimaryCtxRetain(&primary[i], i));
    OK(cuCtxSetCurrent(primary[i]));
    OK(cuModuleLoadData(&loaded, kernels_ptx));
    OK(cuModuleGetFunction(&affine[i], loaded, "affine"));
    OK(cuModuleGetFunction(&slow[i], loaded, "slow_copy"));
    OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
}

// Each device in its turn multiplies by its factor and adds 1.
static void written_by_both(const char *what, unsigned *memory) {
    CUdeviceptr address = (CUdeviceptr)memory;
    unsigned count = COUNT, term = 1;
    for (unsigned i = 0; i < COUNT; i++)
        memory[i] = i;
    for (int i = 0; i < 2; i++) {
        unsigned factor = (unsigned)i + 2;
        QUIET(cuCtxSetCurrent(primary[i]));
        QUIET(LAUNCH(affine[i], 1, COUNT, stream[i], &address, &count, &factor, &term));
        QUIET(cuStreamSynchronize(stream[i]));
        printf("%s after device %d: %u\n", what, i, memory[10]);
    }
    memory[10]++;
    OK(cuCtxSetCurrent(primary[0]));
    unsigned factor = 2;
    OK(LAUNCH(affine[0], 1, COUNT, stream[0], &address, &count, &factor, &term));
    OK(cuStreamSynchronize(stream[0]));
    EXPECT(memory[10] == 131 && memory[COUNT - 1] == 765);
}

static void shared(void) {
    unsigned *managed[2], *pinned[2];
    void *mapped[2];
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuMemAllocManaged((CUdeviceptr *)&managed[i], COUNT * 4, CU_MEM_ATTACH_GLOBAL));
        written_by_both("managed", managed[i]);
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuMemHostAlloc((void **)&pinned[i], COUNT * 4, CU_MEMHOSTALLOC_PORTABLE));
        written_by_both("pinned", pinned[i]);
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuMemHostAlloc(&mapped[i], COUNT * 4, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
        written_by_both("mapped", mapped[i]);
    }
    OK(cuCtxSetCurrent(primary[1])); // a kernel of the second device is the first that is given it
    OK(cuMemFreeHost(pinned[1]));
    OK(cuMemHostAlloc((void **)&pinned[1], COUNT * 4, 0));
    unsigned count = COUNT, factor = 1, term = 5;
    memset(pinned[1], 0, COUNT * 4);
    OK(LAUNCH(affine[1], 1, COUNT, stream[1], &pinned[1], &count, &factor, &term));
    OK(cuStreamSynchronize(stream[1]));
    EXPECT(pinned[1][0] == 5 && pinned[1][COUNT - 1] == 5);
    for (int i = 0; i < 2; i++) {
        OK(cuMemFree((CUdeviceptr)managed[i]));
        OK(cuMemFreeHost(pinned[i]));
        OK(cuMemFreeHost(mapped[i]));
    }
}

// What the second device does is waited for, while the first one is current.
static void freed(void) {
    CUdeviceptr source, target, managed;
    void *mapped;
    unsigned count = 32, delay = 300000;
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemAlloc(&source, COUNT * 4));
    OK(cuMemAlloc(&target, COUNT * 4));
    OK(cuMemAllocManaged(&managed, COUNT * 4, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&mapped, COUNT * 4, CU_MEMHOSTALLOC_DEVICEMAP));
    for (int kind = 0; kind < 3; kind++) {
        CUdeviceptr to = kind == 0 ? target : kind == 1 ? managed : (CUdeviceptr)mapped;
        OK(cuCtxSetCurrent(primary[1]));
        OK(LAUNCH(slow[1], 1, 32, stream[1], &to, &source, &count, &delay));
        OK(cuCtxSetCurrent(primary[0]));
        if (kind == 2)
            OK(cuMemFreeHost(mapped));
        else
            OK(cuMemFree(to));
        OK(cuStreamQuery(stream[1]));
    }
}

// By way of an array of the second device.
static void array_between(CUarray array, CUdeviceptr from, CUdeviceptr to) {
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = 32,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 32,
                          .Height = 4};
    OK(cuMemcpy2D(&rows));
    rows.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    rows.srcArray = array;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = to;
    rows.dstPitch = 32;
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemcpy2D(&rows));
    OK(cuCtxSynchronize()); // it is within one device, and the call need not wait for it
}

// A blocking copy between devices comes behind all that both were given, and before what follows.
static void copied(void) {
    CUdeviceptr source, middle, target;
    CUarray array;
    unsigned count = 32, delay = 300000, found[32];
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemAlloc(&target, sizeof found));
    OK(cuArrayCreate(&array, &(CUDA_ARRAY_DESCRIPTOR){8, 4, CU_AD_FORMAT_UNSIGNED_INT32, 1}));
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuMemAlloc(&source, sizeof found));
    OK(cuMemAlloc(&middle, sizeof found));
    for (unsigned way = 0; way < 5; way++) {
        const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = middle,
                                    .srcPitch = 32,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = target,
                                    .dstPitch = 32,
                                    .WidthInBytes = 32,
                                    .Height = 4};
        OK(cuCtxSetCurrent(primary[0]));
        OK(cuMemsetD32(source, way + 5, count));
        OK(cuMemsetD32(middle, 0, count));
        OK(cuCtxSynchronize());
        OK(LAUNCH(slow[0], 1, 32, NULL, &middle, &source, &count, &delay));
        OK(cuCtxSetCurrent(primary[way % 2]));
        if (way < 2)
            OK(cuMemcpyDtoD(target, middle, sizeof found));
        else if (way == 2)
            OK(cuMemcpy(target, middle, sizeof found));
        else if (way == 3)
            OK(cuMemcpy2D(&rows));
        else
            array_between(array, middle, target);
        OK(cuCtxSetCurrent(primary[0]));
        OK(cuMemsetD32(middle, 99, count));
        OK(cuMemcpyDtoH(found, target, sizeof found));
        EXPECT(found[0] == way + 5 && found[31] == way + 5);
    }
}

static void cooperative(void) {
    CUdeviceptr memory[2];
    unsigned count = COUNT, factor = 3, term = 1, value;
    void *arguments[2][4];
    CUDA_LAUNCH_PARAMS list[2];
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(primary[i]));
        OK(cuMemAlloc(&memory[i], COUNT * 4));
        OK(cuMemsetD32(memory[i], 10u * ((unsigned)i + 1), COUNT));
        OK(cuCtxSynchronize());
        memcpy(arguments[i], (void *[]){&memory[i], &count, &factor, &term}, sizeof arguments[i]);
        list[i] = (CUDA_LAUNCH_PARAMS){affine[i], 1, 1, 1, COUNT, 1, 1, 0, stream[i], arguments[i]};
    }
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuStreamSynchronize(stream[i]));
        OK(cuMemcpyDtoH(&value, memory[i], 4));
        EXPECT(value == 30u * ((unsigned)i + 1) + 1);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 3, 0));
    list[1].gridDimX = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    list[1] = list[0];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
}

/* What cuMemCreate was told of its memory is what is said of it. */
static void described(void) {
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}},
                        found;
    CUmemGenericAllocationHandle handle;
    size_t granule;
    OK(cuMemGetAllocationGranularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&handle, granule, &wanted, 0));
    memset(&found, 0xff, sizeof found);
    OK(cuMemGetAllocationPropertiesFromHandle(&found, handle));
    EXPECT(found.type == wanted.type && found.requestedHandleTypes == wanted.requestedHandleTypes);
    EXPECT(found.location.type == CU_MEM_LOCATION_TYPE_DEVICE && found.location.id == 1);
    EXPECT(found.allocFlags.compressionType == 0 && found.allocFlags.usage == 0);
    OK(cuMemRelease(handle));
}

// Memory of a pool is of the stream's device, whichever is current, and outlives the reset of either.
static void pooled(void) {
    CUdeviceptr kept;
    unsigned value = 0;
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuMemAllocAsync(&kept, 4 * COUNT, stream[1]));
    OK(cuMemsetD32Async(kept, 7, COUNT, stream[1]));
    OK(cuStreamSynchronize(stream[1]));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemcpyDtoH(&value, kept, 4));
    EXPECT(value == 7);
    OK(cuDevicePrimaryCtxReset(1));
    OK(cuDevicePrimaryCtxRetain(&primary[1], 1));
    OK(cuCtxSetCurrent(primary[1]));
    OK(cuMemcpyDtoH(&value, kept, 4));
    EXPECT(value == 7);
    OK(cuMemFreeAsync(kept, NULL));
}

int main(void) {
    OK(cuInit(0));
    begin(0);
    begin(1);
    shared();
    described();
    freed();
    copied();
    cooperative();
    pooled();
    return check_failed;
}
