// A process that has nearly as many areas of memory as the system allows writes every second page of managed
// memory behind a kernel: each would be an area of its own.
#include <sys/mman.h>

#include "driver.h"

enum { PAGE = 4096, PAGES = 4096, SPARE = 800, MOST = 1 << 17, STEP = PAGE / 4 };

static long number_in(const char *path) {
    long number = 0;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%ld", &number) != 1)
        number = 0;
    if (file)
        fclose(file);
    return number;
}

static long areas(void) {
    long count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    for (int c; file && (c = fgetc(file)) != EOF;)
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

// Takes all but a few of them, where that is quickly done.
static void crowd(void) {
    long left = number_in("/proc/sys/vm/max_map_count") - areas() - SPARE;
    if (left <= 0 || left > MOST)
        return;
    char *all =
        mmap(NULL, (size_t)left * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (long i = 0; all != MAP_FAILED && i + 1 < left; i += 2)
        mprotect(all + i * PAGE, PAGE, PROT_READ);
}

int main(void) {
    CUdeviceptr managed;
    unsigned count = PAGES * STEP, seed = 3, factor = 2, term = 1, wrong = 0;
    start();
    OK(cuMemAllocManaged(&managed, (size_t)PAGES * PAGE, CU_MEM_ATTACH_GLOBAL));
    unsigned *words = (unsigned *)managed;
    OK(LAUNCH(kernel("fill"), count / 256, 256, NULL, &managed, &count, &seed));
    OK(LAUNCH(kernel("affine"), count / 256, 256, NULL, &managed, &count, &factor, &term));
    OK(cuCtxSynchronize());
    crowd();
    for (unsigned i = 0; i < count; i += 2 * STEP)
        words[i] = i;
    OK(LAUNCH(kernel("affine"), count / 256, 256, NULL, &managed, &count, &factor, &term));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < count; i += STEP) {
        unsigned before = i % (2 * STEP) ? (i ^ seed) * 2654435761u * factor + term : i;
        wrong += words[i] != before * factor + term;
    }
    EXPECT(wrong == 0);
    OK(cuMemFree(managed));
    return check_failed;
}
