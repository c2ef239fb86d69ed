// Rights of mapped memory: none at first, for whole mappings only, readable is not writable. Copies against
// the rights are refused; a kernel's write to memory that is only readable is an illegal address.
#include "vmm.h"

int main(void) {
    start_vmm();
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                  nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1000};
    CUmemAccessDesc both[2] = {access_of(CU_MEM_ACCESS_FLAGS_PROT_READ),
                               access_of(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
    CUmemAccessDesc one = both[1], wrong;
    CUmemGenericAllocationHandle first = create(2 * granule), second = create(granule);
    CUdeviceptr base = reserve(4 * granule);
    unsigned long long flags;
    unsigned value = 7;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, granule, &one, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, base));
    map(base, 2 * granule, first);
    map(base + 2 * granule, granule, second);
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT(told_rights(base) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base));
    CUdeviceptr plain = allocate(64);
    EXPECT(rights(plain + 63) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(told_rights(plain) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    OK(cuMemFree(plain));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(base, &value, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, base, 4));

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, granule, &one, 1)); // a part of a mapping
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base + granule, 2 * granule, &one, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 4 * granule, &one, 1)); // the end is not mapped
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 0, &one, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 2 * granule, NULL, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 2 * granule, &one, 0));
    wrong = access_of((CUmemAccess_flags)2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 2 * granule, &wrong, 1));
    wrong = one;
    wrong.location = nowhere;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(base, 2 * granule, &wrong, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(NULL, &here, base));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, NULL, base));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess(&flags, &nowhere, base));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, base + 3 * granule));
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_NONE);

    OK(cuMemSetAccess(base, 3 * granule, &one, 1));
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(rights(base + 3 * granule - 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    store_at(base + 8, 41);
    store_at(base + 2 * granule, 42);
    OK(cuMemSetAccess(base, 2 * granule, &both[0], 1));
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT(rights(base + 2 * granule) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(told_rights(base) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
    EXPECT(told_rights(base + 2 * granule) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    EXPECT(word_at(base + 8) == 41);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(base + 8, &value, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(base + 8, 1, 1));
    OK(cuMemcpyDtoD(base + 2 * granule + 8, base + 8, 4));
    EXPECT(word_at(base + 2 * granule + 8) == 41);
    CUdeviceptr from = base + 8, to = base + 2 * granule + 16;
    OK(LAUNCH(kernel("load"), 1, 1, NULL, &to, &from)); // a kernel may read it
    EXPECT(word_at(to) == 41);
    OK(cuMemSetAccess(base, 2 * granule, both, 2)); // the last one counts
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    // unmapped and mapped again, it has no rights
    OK(cuMemUnmap(base, 2 * granule));
    map(base, 2 * granule, first);
    EXPECT(rights(base) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    allow(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT(word_at(base + 8) == 41);
    store_at(base + 8, 99);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoH(&value, base + 2 * granule, 4));
    return check_failed;
}
