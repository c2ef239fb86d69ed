// The program's own virtual memory: a reservation filled piece by piece, physical memory that moves from
// address to address with its content, lies at several at once, and outlives its handle while it is mapped.
#include "vmm.h"

static size_t free_bytes(void) {
    size_t available = 0, total = 0;
    QUIET(cuMemGetInfo(&available, &total));
    return available;
}

// As allocators that grow do: more memory behind what is there, at addresses that stay.
static void grow(void) {
    CUmemGenericAllocationHandle pieces[4];
    CUdeviceptr base = reserve(4 * granule);
    EXPECT(base % granule == 0);
    unsigned words = (unsigned)(granule / 4), factor = 3, term = 5;
    for (unsigned i = 0; i < 4; i++) {
        pieces[i] = create(granule);
        map(base + i * granule, granule, pieces[i]);
        allow(base + i * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        QUIET(cuMemRelease(pieces[i]));
        QUIET(cuMemsetD32(base + i * granule, i, words));
    }
    // one kernel, one fill and one copy across all of them
    unsigned all = 4 * words;
    OK(LAUNCH(kernel("affine"), (all + 255) / 256, 256, NULL, &base, &all, &factor, &term));
    for (unsigned i = 0; i < 4; i++)
        EXPECT(word_at(base + (i + 1) * granule - 4) == 3 * i + 5);
    OK(cuMemsetD8(base + granule - 2, 0xff, 4));
    EXPECT(word_at(base + granule - 4) == 0xffff0005u && word_at(base + granule) == 0x0000ffffu);
    OK(cuMemcpyDtoD(base + granule / 2, base + 2 * granule - granule / 2, granule));
    EXPECT(word_at(base + granule / 2) == 8 && word_at(base + granule) == 11);
    CUdeviceptr piece = 0;
    size_t size = 0;
    OK(cuMemGetAddressRange(&piece, &size, base + granule + 100));
    EXPECT(piece == base + granule && size == granule); // one physical memory, not all that is mapped
    OK(cuMemUnmap(base, 4 * granule));
    OK(cuMemAddressFree(base, 4 * granule));
}

// One piece of memory at two addresses; then at a third, with its content.
static void alias(void) {
    CUmemGenericAllocationHandle handle = create(2 * granule), retained = 0;
    CUdeviceptr base = reserve(6 * granule), second = base + 3 * granule;
    map(base, 2 * granule, handle);
    map(second, 2 * granule, handle);
    allow(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    allow(second, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    store_at(base + granule, 1234);
    EXPECT(word_at(second + granule) == 1234);
    store_at(second + granule + 4, 5678);
    EXPECT(word_at(base + granule + 4) == 5678);
    OK(cuMemUnmap(base, 2 * granule));
    EXPECT(word_at(second + granule) == 1234);
    OK(cuMemRetainAllocationHandle(&retained, (void *)(second + 12345)));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(second, 2 * granule)); // the retained handle keeps it
    map(base + granule, 2 * granule, retained);
    OK(cuMemRelease(retained));
    allow(base + granule, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT(word_at(base + 2 * granule) == 1234 && word_at(base + 2 * granule + 4) == 5678);
    OK(cuMemUnmap(base + granule, 2 * granule));
    OK(cuMemAddressFree(base, 6 * granule));
}

// As allocators with segments that grow do, one for each stream: addresses cost nothing, however many.
static void more_than_there_is(void) {
    CUdeviceptr segments[6], plain = 0;
    size_t before = free_bytes(), size = (size_t)1 << 40;
    for (int i = 0; i < 6; i++)
        OK(cuMemAddressReserve(&segments[i], size, 0, 0, 0));
    EXPECT(free_bytes() == before);
    CUdeviceptr inside = segments[5] + size / 2;
    CUmemGenericAllocationHandle handle = create(granule);
    map(inside, granule, handle);
    allow(inside, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    store_at(inside + granule - 4, 77);
    EXPECT(word_at(inside + granule - 4) == 77);
    OK(cuMemAlloc(&plain, granule));
    OK(cuMemFree(plain));
    OK(cuMemUnmap(inside, granule));
    OK(cuMemRelease(handle));
    for (int i = 0; i < 6; i++)
        OK(cuMemAddressFree(segments[i], size));
}

static void describe(void) {
    CUmemAllocationProp found = {0};
    CUmemGenericAllocationHandle handle = create(granule);
    CUdeviceptr base = reserve(2 * granule), start_of = 0;
    CUcontext owner = context;
    CUmemorytype type = 0;
    size_t size = 0, recommended = 0;
    int ordinal = -1;
    OK(cuMemGetAllocationPropertiesFromHandle(&found, handle));
    EXPECT(found.type == properties.type && found.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           found.location.id == device && found.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
    OK(cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EXPECT(recommended >= granule && recommended % granule == 0);
    map(base, granule, handle);
    OK(cuMemGetAddressRange(&start_of, &size, base + 4096));
    EXPECT(start_of == base && size == granule);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base));
    EXPECT(owner == NULL); // of no context: so programs tell this memory from cuMemAlloc's
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + 4096));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
    EXPECT(ordinal == device);
    FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start_of, &size, base + granule));
    OK(cuMemUnmap(base, granule));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(base, 2 * granule));
}

int main(void) {
    start_vmm();
    int supported = 0;
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    EXPECT(supported == 1); // who asks first must not be told otherwise
    size_t before = free_bytes();
    grow();
    alias();
    more_than_there_is();
    describe();
    CUmemGenericAllocationHandle handle = create(4 * granule);
    EXPECT(free_bytes() + 4 * granule <= before);
    CUdeviceptr base = reserve(4 * granule), aligned = 0;
    map(base, 4 * granule, handle);
    OK(cuMemRelease(handle));
    EXPECT(free_bytes() + 4 * granule <= before); // the mapping keeps it
    OK(cuMemUnmap(base, 4 * granule));
    EXPECT(free_bytes() == before);
    OK(cuMemAddressFree(base, 4 * granule));
    OK(cuMemAddressReserve(&aligned, granule, 16 * granule, 0, 0));
    EXPECT(aligned % (16 * granule) == 0);
    OK(cuMemAddressFree(aligned, granule));
    return check_failed;
}
