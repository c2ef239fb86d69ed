// Every call that makes something, with the nth allocation of the guest library failing, for n = 1, 2, …
// until it succeeds: it says CUDA_ERROR_OUT_OF_MEMORY, leaves nothing behind, and the session goes on.
#include "driver.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static _Thread_local long countdown; // 0: none fails
static long failed;

static int fails_now(void) {
    return countdown > 0 && --countdown == 0;
}

void *malloc(size_t size) {
    return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return fails_now() ? NULL : __libc_realloc(old, size);
}

// The call, until it succeeds although, or because, no allocation of it fails.
#define MADE(call)                                                                                           \
    do {                                                                                                     \
        CUresult result;                                                                                     \
        long tries = 0;                                                                                      \
        do {                                                                                                 \
            countdown = ++tries;                                                                             \
            result = (call);                                                                                 \
            countdown = 0;                                                                                   \
            QUIET(cuCtxSynchronize());                                                                       \
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && tries < MOST);                                        \
        if (result != CUDA_SUCCESS || tries > 1)                                                             \
            check_result(#call, check_name(result), "CUDA_SUCCESS");                                         \
        failed += tries - 1;                                                                                 \
    } while (0)

enum { MOST = 50, MANY = 300, PAGE = 2 << 20, DEEP = 7 };

// More than a chunk of handles and a slab of blocks hold, so that the tables grow.
static void make_many(void) {
    CUstream streams[MANY];
    CUevent events[MANY];
    CUdeviceptr addresses[MANY];
    for (int i = 0; i < MANY; i++) {
        MADE(cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
        MADE(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
        MADE(cuMemAlloc(&addresses[i], 4096));
    }
    for (int i = 0; i < MANY; i++) {
        QUIET(cuStreamDestroy(streams[i]));
        QUIET(cuEventDestroy(events[i]));
        QUIET(cuMemFree(addresses[i]));
    }
}

static void make_code(void) {
    CUmodule own;
    CUlibrary library;
    CUdeviceptr address;
    size_t size;
    CUfunction function;
    CUkernel entry;
    MADE(cuModuleLoadData(&own, kernels_ptx));
    MADE(cuModuleGetFunction(&function, own, "store"));
    MADE(cuModuleGetGlobal(&address, &size, own, "global_words"));
    OK(cuModuleUnload(own));
    MADE(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    MADE(cuLibraryGetKernel(&entry, library, "store"));
    MADE(cuLibraryGetModule(&own, library));
    MADE(cuKernelGetFunction(&function, entry));
    OK(cuLibraryUnload(library));
}

// The name lies in memory that the device has too, which is copied before it is sent.
static void make_named(void) {
    CUmodule own;
    CUdeviceptr address;
    size_t size;
    char *name = NULL;
    OK(cuMemHostAlloc((void **)&name, PAGE, CU_MEMHOSTALLOC_DEVICEMAP));
    strcpy(name, "global_words");
    OK(cuModuleLoadData(&own, kernels_ptx));
    MADE(cuModuleGetGlobal(&address, &size, own, name));
    OK(cuModuleUnload(own));
    OK(cuMemFreeHost(name));
}

static void make_link(void) {
    CUjit_option option = CU_JIT_OPTIMIZATION_LEVEL;
    void *value = (void *)3, *image;
    CUlinkState link;
    CUmodule linked;
    size_t size;
    MADE(cuLinkCreate(1, &option, &value, &link));
    MADE(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)kernels_ptx, strlen(kernels_ptx) + 1, "kernels", 0,
                       NULL, NULL));
    MADE(cuLinkComplete(link, &image, &size));
    OK(cuModuleLoadData(&linked, image));
    OK(cuModuleUnload(linked));
    OK(cuLinkDestroy(link));
}

static void make_memory(CUstream stream) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemPoolProps shape = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemGenericAllocationHandle physical;
    CUmemoryPool pool;
    CUdeviceptr address;
    void *host;
    size_t pitch;
    MADE(cuMemPoolCreate(&pool, &shape));
    MADE(cuMemAllocFromPoolAsync(&address, PAGE, pool, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuMemPoolDestroy(pool));
    MADE(cuMemAllocAsync(&address, PAGE, stream));
    OK(cuMemFreeAsync(address, stream));
    MADE(cuMemHostAlloc(&host, PAGE, 0));
    OK(cuMemFreeHost(host));
    MADE(cuMemAllocPitch(&address, &pitch, 100, 100, 4));
    OK(cuMemFree(address));
    MADE(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    MADE(cuMemCreate(&physical, PAGE, &kind, 0));
    MADE(cuMemMap(address, PAGE, 0, physical, 0));
    OK(cuMemUnmap(address, PAGE));
    OK(cuMemRelease(physical));
    OK(cuMemAddressFree(address, PAGE));
}

static void make_context(void) {
    CUcontext made, current;
    MADE(cuCtxCreate(&made, NULL, 0, device));
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == made);
    OK(cuCtxDestroy(made));
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == context);
}

// The stack of contexts must grow for it. What could not be pushed the server never had.
static void make_context_on_full_stack(void) {
    CUcontext made, current;
    for (int i = 0; i < DEEP; i++) {
        OK(cuCtxPushCurrent(context));
    }
    MADE(cuCtxCreate(&made, NULL, 0, device));
    OK(cuCtxDestroy(made));
    OK(cuCtxSynchronize());
    for (int i = 0; i < DEEP; i++) {
        OK(cuCtxPopCurrent(&current));
    }
    EXPECT(current == context);
}

int main(int count, char **arguments) {
    CUstream stream;
    size_t before, after, total;
    start();
    if (count > 1 && strcmp(arguments[1], "code") == 0) {
        make_code();
        return check_failed;
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemGetInfo(&before, &total));
    for (int round = 0; round < 2; round++) {
        make_many();
        make_code();
        make_named();
        make_link();
        make_memory(stream);
        make_context();
        make_context_on_full_stack();
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemGetInfo(&after, &total));
    EXPECT(after == before);
    fprintf(stderr, "failed %ld\n", failed);
    return check_failed;
}
