// A program of several processes on two devices, as those that train a model start one for each device: a
// child works on the second device, which it chooses or which is all that CUDA_VISIBLE_DEVICES shows it; each
// opens the others' memory on its own device and on the other one; a child's child has both devices as well;
// and what comes by a descriptor is known to be the device's whose it is, whichever is current.
//
// suite: devices
#include "driver.h"

#include "processes.h"

enum { WORDS = 3 << 18, PHYSICAL = 2 << 20, LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

struct handles {
    CUipcMemHandle on[2];      // by device
    CUipcEventHandle event[2]; // the same
};

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

static CUfunction enter(int device) {
    CUcontext context;
    CUdevice here = -1;
    CUmodule module;
    CUfunction function;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetDevice(&here));
    EXPECT(here == device);
    OK(cuModuleLoadData(&module, kernels_ptx));
    OK(cuModuleGetFunction(&function, module, "count_up"));
    return function;
}

static void work(int device, unsigned value) {
    CUfunction count_up = enter(device);
    CUdeviceptr words = allocate(WORDS * 4);
    OK(cuMemsetD32(words, value, WORDS));
    OK(LAUNCH(count_up, 1, 1, NULL, &words));
    EXPECT(word_at(words) == value + 1 && word_at(words + 4) == value);
    OK(cuMemFree(words));
}

static void expect_devices(int wanted, const CUuuid *first) {
    int count = 0;
    CUuuid uuid;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    EXPECT(count == wanted);
    OK(cuDeviceGetUuid(&uuid, 0));
    EXPECT(memcmp(&uuid, first, sizeof uuid) == 0);
}

// All that it sees is the second device, as its first; what is the first one's it cannot open.
static void narrow(void) {
    struct handles handles;
    CUdeviceptr opened = 0;
    CUuuid uuid;
    hear(&uuid, sizeof uuid);
    expect_devices(1, &uuid);
    work(0, 300);
    hear(&handles, sizeof handles);
    OK(cuIpcOpenMemHandle(&opened, handles.on[1], LAZY));
    EXPECT(word_at(opened) == 71);
    int ordinal = -1;
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened));
    EXPECT(ordinal == 0);
    OK(LAUNCH(enter(0), 1, 1, NULL, &opened));
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(opened));
    CUevent event;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&opened, handles.on[0], LAZY));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&event, handles.event[0]));
    OK(cuIpcOpenEventHandle(&event, handles.event[1]));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy(event));
}

static CUdeviceptr map(CUmemGenericAllocationHandle memory, int device) {
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, PHYSICAL, 0, 0, 0));
    OK(cuMemMap(address, PHYSICAL, 0, memory, 0));
    OK(cuMemSetAccess(address, PHYSICAL, &access, 1));
    return address;
}

static void unmap(CUmemGenericAllocationHandle memory, CUdeviceptr address) {
    OK(cuMemUnmap(address, PHYSICAL));
    OK(cuMemAddressFree(address, PHYSICAL));
    OK(cuMemRelease(memory));
}

// Physical memory of the second device, imported while the first is current.
static void import_physical(void) {
    int descriptor = hear_descriptor();
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp properties;
    OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)descriptor,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, memory));
    EXPECT(properties.location.id == 1);
    CUdeviceptr address = map(memory, 1);
    EXPECT(word_at(address) == 80);
    unmap(memory, address);
}

// A pool of the second device is that device's where it is imported, too.
static void tell_pool(void) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemoryPool pool;
    int descriptor;
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemPoolExportToShareableHandle(&descriptor, pool, properties.handleTypes, 0));
    tell_descriptor(descriptor);
    close(descriptor);
}

static void import_pool(void) {
    int descriptor = hear_descriptor();
    CUmemoryPool pool;
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(descriptor);
    for (int i = 0; i < 2; i++) {
        CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i};
        CUmemAccess_flags flags;
        OK(cuMemPoolGetAccess(&flags, pool, &location));
        EXPECT(flags == (i == 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE));
    }
    OK(cuMemPoolDestroy(pool));
}

// It sees both, and works on the second with memory of both.
static void wide(const char *program) {
    struct handles handles;
    CUdeviceptr opened[2] = {0, 0}, own;
    CUuuid uuid;
    int ordinal = -1;
    hear(&uuid, sizeof uuid);
    expect_devices(2, &uuid);
    work(0, 400);
    hear(&handles, sizeof handles);
    import_physical();
    import_pool();
    CUfunction count_up = enter(1);
    OK(cuIpcOpenMemHandle(&opened[1], handles.on[1], LAZY));
    OK(cuIpcOpenMemHandle(&opened[0], handles.on[0], LAZY));
    EXPECT(word_at(opened[1]) == 72 && word_at(opened[0]) == 70);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened[1]));
    EXPECT(ordinal == 1);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened[0]));
    EXPECT(ordinal == 0);
    own = allocate(WORDS * 4);
    OK(cuMemcpyDtoD(own, opened[0], WORDS * 4));
    EXPECT(word_at(own) == 70 && word_at(own + 4 * (WORDS - 1)) == 70);
    OK(LAUNCH(count_up, 1, 1, NULL, &opened[0])); // a kernel of the second device, memory of the first
    OK(cuCtxSynchronize());
    EXPECT(word_at(opened[0]) == 71 && word_at(opened[0] + 4) == 70);
    OK(cuMemcpyDtoD(opened[0] + 4, opened[1], 4));
    OK(cuCtxSynchronize());
    pid_t child = spawn(program, "grandchild");
    tell(&uuid, sizeof uuid);
    EXPECT(ended_well(child));
    OK(cuIpcCloseMemHandle(opened[0]));
    OK(cuIpcCloseMemHandle(opened[1]));
}

static void grandchild(void) {
    CUuuid uuid;
    hear(&uuid, sizeof uuid);
    expect_devices(2, &uuid);
    work(1, 500);
    work(0, 600);
}

int main(int count, char **arguments) {
    const char *role = role_of(count, arguments);
    printf("%s\n", role);
    if (strcmp(role, "narrow") == 0) {
        narrow();
        return check_failed;
    }
    if (strcmp(role, "wide") == 0) {
        wide(arguments[0]);
        return check_failed;
    }
    if (strcmp(role, "grandchild") == 0) {
        grandchild();
        return check_failed;
    }
    struct handles handles;
    CUdeviceptr memory[2];
    CUcontext context[2];
    CUevent event;
    CUuuid uuid[2];
    OK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetUuid(&uuid[i], i));
        enter(i);
        OK(cuCtxGetCurrent(&context[i]));
        memory[i] = allocate(WORDS * 4);
        OK(cuMemsetD32(memory[i], 70 + (unsigned)i, WORDS));
        OK(cuIpcGetMemHandle(&handles.on[i], memory[i]));
        OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        OK(cuIpcGetEventHandle(&handles.event[i], event));
        OK(cuCtxSynchronize());
    }
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    pid_t child = spawn(arguments[0], "narrow");
    tell(&uuid[1], sizeof uuid[1]);
    tell(&handles, sizeof handles);
    EXPECT(ended_well(child));
    EXPECT(word_at(memory[1]) == 72 && word_at(memory[1] + 4) == 71);

    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}}};
    CUmemGenericAllocationHandle physical;
    int descriptor = -1;
    OK(cuMemCreate(&physical, PHYSICAL, &properties, 0));
    CUdeviceptr mapped = map(physical, 1);
    OK(cuMemsetD32(mapped, 80, PHYSICAL / 4));
    OK(cuCtxSynchronize());
    OK(cuMemExportToShareableHandle(&descriptor, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

    unsetenv("CUDA_VISIBLE_DEVICES");
    child = spawn(arguments[0], "wide");
    tell(&uuid[0], sizeof uuid[0]);
    tell(&handles, sizeof handles);
    tell_descriptor(descriptor);
    tell_pool();
    EXPECT(ended_well(child));
    close(descriptor);
    unmap(physical, mapped);
    OK(cuCtxSetCurrent(context[0]));
    EXPECT(word_at(memory[0]) == 71 && word_at(memory[0] + 4) == 72);
    for (int i = 0; i < 2; i++) {
        OK(cuMemFree(memory[i]));
    }
    return check_failed;
}
