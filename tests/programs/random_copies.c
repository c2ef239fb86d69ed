// Copies of boxes and fills between memory of every kind, chosen at random, in one stream and without waits
// in between: what comes of them is what they would have made one after another.
#include "vmm.h"

enum { PITCH = 64, ROWS = 16, SLICES = 8, BYTES = PITCH * ROWS * SLICES, STEPS = 300, LOOKS = 15 };

enum kind { PAGEABLE, PINNED, MAPPED, REGISTERED, REACHED, MANAGED, DEVICE, OWN, ARRAY, KINDS };

static struct {
    unsigned char *host; // NULL: the program does not reach it
    CUdeviceptr device;  // 0: kernels do not
    CUarray array;
    unsigned char model[BYTES];
} all[KINDS];

static unsigned state = 1;

static unsigned below(unsigned limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
}

static unsigned char *page_locked(unsigned flags) {
    void *memory = NULL;
    QUIET(cuMemHostAlloc(&memory, BYTES, flags));
    return memory;
}

static void make(void) {
    CUDA_ARRAY3D_DESCRIPTOR desc = {PITCH, ROWS, SLICES, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    all[PAGEABLE].host = aligned_alloc(4096, BYTES);
    all[PINNED].host = page_locked(0);
    all[MAPPED].host = page_locked(CU_MEMHOSTALLOC_DEVICEMAP);
    all[MAPPED].device = (CUdeviceptr)all[MAPPED].host;
    all[REGISTERED].host = aligned_alloc(4096, BYTES);
    OK(cuMemHostRegister(all[REGISTERED].host, BYTES, 0));
    all[REACHED].host = aligned_alloc(4096, BYTES);
    OK(cuMemHostRegister(all[REACHED].host, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&all[REACHED].device, all[REACHED].host, 0));
    OK(cuMemAllocManaged(&all[MANAGED].device, BYTES, CU_MEM_ATTACH_GLOBAL));
    all[MANAGED].host = (unsigned char *)all[MANAGED].device;
    all[DEVICE].device = allocate(BYTES);
    all[OWN].device = reserve(granule);
    map(all[OWN].device, granule, create(granule));
    allow(all[OWN].device, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuArray3DCreate(&all[ARRAY].array, &desc));
    for (int kind = 0; kind < KINDS; kind++) {
        if (all[kind].host)
            memset(all[kind].host, 0, BYTES);
        else if (all[kind].device)
            QUIET(cuMemsetD8(all[kind].device, 0, BYTES));
    }
    OK(cuCtxSynchronize());
}

struct place {
    CUmemorytype type;
    void *host;
    CUdeviceptr device;
};

// One of the ways in which a program may name the memory.
static struct place name(int kind) {
    if (kind == ARRAY)
        return (struct place){.type = CU_MEMORYTYPE_ARRAY};
    if (all[kind].host && (!all[kind].device || below(2)))
        return below(3)
                   ? (struct place){.type = CU_MEMORYTYPE_HOST, .host = all[kind].host}
                   : (struct place){.type = CU_MEMORYTYPE_UNIFIED, .device = (CUdeviceptr)all[kind].host};
    return (struct place){.type = below(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
                          .device = all[kind].device};
}

static void copy(CUstream stream) {
    int to = (int)below(KINDS), from = (int)((unsigned)to + 1 + below(KINDS - 1)) % KINDS;
    unsigned width = 1 + below(PITCH), height = 1 + below(ROWS), depth = 1 + below(SLICES);
    unsigned x[2] = {below(PITCH - width + 1), below(PITCH - width + 1)};
    unsigned y[2] = {below(ROWS - height + 1), below(ROWS - height + 1)};
    unsigned z[2] = {below(SLICES - depth + 1), below(SLICES - depth + 1)};
    struct place target = name(to), source = name(from);
    CUDA_MEMCPY3D c = {
        x[0],  y[0],   z[0], 0, source.type, source.host, source.device, all[from].array, NULL, PITCH, ROWS,
        x[1],  y[1],   z[1], 0, target.type, target.host, target.device, all[to].array,   NULL, PITCH, ROWS,
        width, height, depth};
    QUIET(below(4) ? cuMemcpy3DAsync(&c, stream) : cuMemcpy3D(&c));
    for (unsigned k = 0; k < depth; k++)
        for (unsigned j = 0; j < height; j++)
            memcpy(all[to].model + ((z[1] + k) * ROWS + y[1] + j) * PITCH + x[1],
                   all[from].model + ((z[0] + k) * ROWS + y[0] + j) * PITCH + x[0], width);
}

static void fill(CUstream stream) {
    int kind = (int)below(KINDS);
    unsigned width = 1 + below(PITCH), height = 1 + below(ROWS), value = below(256);
    unsigned offset = below(PITCH - width + 1);
    CUdeviceptr memory = all[kind].device ? all[kind].device : (CUdeviceptr)all[kind].host;
    if (kind == PAGEABLE || kind == ARRAY)
        return;
    QUIET(below(4) ? cuMemsetD2D8Async(memory + offset, PITCH, (unsigned char)value, width, height, stream)
                   : cuMemsetD2D8(memory + offset, PITCH, (unsigned char)value, width, height));
    for (unsigned j = 0; j < height; j++)
        memset(all[kind].model + j * PITCH + offset, (int)value, width);
}

static bool is_as_told(int kind) {
    static unsigned char back[BYTES];
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = all[kind].array,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = PITCH,
                       .dstHeight = ROWS,
                       .WidthInBytes = PITCH,
                       .Height = ROWS,
                       .Depth = SLICES};
    if (all[kind].host)
        memcpy(back, all[kind].host, BYTES);
    else
        QUIET(all[kind].array ? cuMemcpy3D(&c) : cuMemcpyDtoH(back, all[kind].device, BYTES));
    return memcmp(back, all[kind].model, BYTES) == 0;
}

// What the program writes itself.
static void write_some(void) {
    int kind = (int)below(KINDS);
    unsigned at = below(BYTES - 100);
    for (unsigned i = at; all[kind].host && i < at + 100; i++)
        all[kind].host[i] = all[kind].model[i] = (unsigned char)below(256);
}

int main(int argc, char **argv) {
    CUstream stream;
    state = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    start_vmm();
    make();
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    for (int look = 0; look < LOOKS; look++) {
        int wrong = -1;
        for (int i = 0; i < 4; i++)
            write_some();
        for (int step = 0; step < STEPS / LOOKS; step++)
            below(4) ? copy(stream) : fill(stream);
        QUIET(cuStreamSynchronize(stream));
        QUIET(cuStreamSynchronize(NULL));
        for (int kind = 0; kind < KINDS; kind++)
            wrong = wrong < 0 && !is_as_told(kind) ? kind : wrong;
        if (wrong >= 0)
            printf("look %d: kind %d\n", look, wrong);
        EXPECT(wrong < 0);
    }
    return check_failed;
}
