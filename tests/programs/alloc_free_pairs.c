// A hundred thousand allocations and frees of mixed sizes; blocks that live meanwhile keep their content, and
// no two overlap.
#include "driver.h"

enum { PAIRS = 100000, LIVE = 64 };

int main(void) {
    struct block {
        CUdeviceptr address;
        size_t bytes;
        unsigned tag;
    } live[LIVE] = {0};
    unsigned random = 1, misaligned = 0, overlapping = 0, wrong = 0;
    size_t before, after, total;
    start();
    OK(cuMemGetInfo(&before, &total));
    for (unsigned i = 0; i < PAIRS; i++) {
        struct block *block = &live[i % LIVE];
        random = random * 1664525u + 1013904223u;
        if (block->address) {
            unsigned found = 0;
            if (i % 1000 < LIVE / 8) {
                QUIET(cuMemcpyDtoH(&found, block->address + block->bytes - 4, 4));
                wrong += found != block->tag;
            }
            QUIET(cuMemFree(block->address));
        }
        block->bytes = ((size_t)1 << (random >> 28)) * 64 + (random >> 20) % 64 * 4;
        block->tag = random;
        if (QUIET(cuMemAlloc(&block->address, block->bytes)) != CUDA_SUCCESS)
            return 1;
        misaligned += block->address % 256 != 0;
        for (int j = 0; i % 100 == 0 && j < LIVE; j++)
            overlapping += &live[j] != block && live[j].address < block->address + block->bytes &&
                           block->address < live[j].address + live[j].bytes;
        if ((i + LIVE) % 1000 < LIVE / 8)
            QUIET(cuMemsetD32(block->address, block->tag, block->bytes / 4));
    }
    for (int j = 0; j < LIVE; j++)
        QUIET(cuMemFree(live[j].address));
    EXPECT(misaligned == 0);
    EXPECT(overlapping == 0);
    EXPECT(wrong == 0);
    OK(cuMemGetInfo(&after, &total));
    EXPECT(before == after);
    return check_failed;
}
