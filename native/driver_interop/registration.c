#include "driver_interop/registration.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGES = 2048 }; /* looked at in one system call */

static uint64_t page_size(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

bool gf_memory_is_there(const void *memory, size_t size) {
    const uint64_t page = page_size(), end = (uint64_t)memory + size, step = PAGES * page;
    unsigned char resident[PAGES];
    if (mincore((void *)((end - 1) / page * page), page, resident) != 0) {
        return false; /* before terabytes of a window are looked at, if the size is far too large */
    }
    for (uint64_t at = (uint64_t)memory / page * page; at < end; at += step) {
        if (mincore((void *)at, step < end - at ? step : end - at, resident) != 0) {
            return false;
        }
    }
    return true;
}

/* Whether every page may be read. A kernel that does not know the advice refuses it everywhere. */
static bool is_readable(uint64_t begin, uint64_t size, uint64_t page) {
    static char here;
    return madvise((void *)begin, size, MADV_POPULATE_READ) == 0 || (errno != EINVAL && errno != EFAULT) ||
           madvise((void *)((uint64_t)&here / page * page), page, MADV_POPULATE_READ) != 0;
}

/* A kernel that does not know these advices refuses both. */
static bool is_read_only(uint64_t address, uint64_t page) {
    return madvise((void *)address, page, MADV_POPULATE_WRITE) != 0 && errno == EINVAL &&
           madvise((void *)address, page, MADV_POPULATE_READ) == 0;
}

CUresult gf_registration_check(void *memory, size_t size, unsigned flags) {
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_IOMEMORY;
    const uint64_t page = page_size(), address = (uint64_t)memory;
    if (memory == NULL || size == 0 || address + size <= address || (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t begin = address / page * page, last = (address + size - 1) / page * page;
    return last + page < begin || !gf_memory_is_there(memory, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gf_registration_allowed(void *memory, size_t size, unsigned flags) {
    const uint64_t page = page_size(), address = (uint64_t)memory, begin = address / page * page;
    const uint64_t last = (address + size - 1) / page * page;
    bool writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ||
                    !(is_read_only(begin, page) || is_read_only(last, page));
    return writable && is_readable(begin, last + page - begin, page) ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}
