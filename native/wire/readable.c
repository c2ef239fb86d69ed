#define _GNU_SOURCE
#include "wire/readable.h"

#include <errno.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

int gf_readable(const void *start, size_t size) {
    enum { PAGE = 4096, PAGES = 128 }; /* few, for the stacks of some threads */
    struct iovec remote[PAGES];
    char bytes[PAGES];
    uintptr_t at = (uintptr_t)start, end = at + size;
    if (end < at) {
        return 0;
    }
    while (at < end) {
        size_t count = 0;
        for (; count < PAGES && at < end; at = (at | (PAGE - 1)) + 1) {
            remote[count++] = (struct iovec){(void *)at, 1};
        }
        struct iovec local = {bytes, count};
        ssize_t got = process_vm_readv(getpid(), &local, 1, remote, count, 0);
        if (got < 0 && errno != EFAULT) {
            return 1; /* not permitted to ask */
        }
        if (got < (ssize_t)count) {
            return 0;
        }
    }
    return 1;
}
