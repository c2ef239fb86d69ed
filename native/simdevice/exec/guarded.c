#define _GNU_SOURCE
#include "guarded.h"
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static size_t whole_pages(size_t size) {
    return (size + PAGE - 1) / PAGE * PAGE;
}

void *sim_guarded_new(size_t size) {
    size_t inside = whole_pages(size);
    uint8_t *all =
        mmap(NULL, inside + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    if (mprotect(all + PAGE, inside, PROT_READ | PROT_WRITE) != 0) {
        munmap(all, inside + 2 * PAGE);
        return NULL;
    }
    return all + PAGE;
}

void sim_guarded_free(void *memory, size_t size) {
    if (memory != NULL)
        munmap((uint8_t *)memory - PAGE, whole_pages(size) + 2 * PAGE);
}
