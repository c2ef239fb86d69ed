#include "driver_interop/registration.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGES = 2048 }; /* looked at in one system call */

static bool is_there(uint64_t begin, uint64_t end, uint64_t page) {
    unsigned char resident[PAGES];
    for (uint64_t step = PAGES * page; begin < end; begin += step < end - begin ? step : end - begin) {
        if (mincore((void *)begin, step < end - begin ? step : end - begin, resident) != 0) {
            return false;
        }
    }
    return true;
}

/* A kernel that does not know these advices refuses both. */
static bool is_read_only(uint64_t address, uint64_t page) {
    return madvise((void *)address, page, MADV_POPULATE_WRITE) != 0 && errno == EINVAL &&
           madvise((void *)address, page, MADV_POPULATE_READ) == 0;
}

CUresult gf_registration_check(void *memory, size_t size, unsigned flags) {
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_IOMEMORY;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address = (uint64_t)memory;
    if (memory == NULL || size == 0 || address + size <= address || (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t begin = address / page * page, last = (address + size - 1) / page * page;
    if (last + page < begin || !is_there(begin, last + page, page)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ||
                    !(is_read_only(begin, page) || is_read_only(last, page));
    return writable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
