// A program that holds BYTES of device memory and works on all of it once for each line on stdin, or TURNS
// times by itself. After each turn it prints how long that took. At the end it looks whether every word is
// right.
//
//   lodger BYTES [TURNS]
#include <time.h>

#include "driver.h"

enum { PAGE = 2 << 20, THREADS = 256, PIECES = 4 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static unsigned initial(size_t piece, size_t page) {
    return (unsigned)(piece * 1000003 + page * 101 + 1);
}

int main(int argc, char **argv) {
    const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    const int alone = argc > 2 ? atoi(argv[2]) : -1;
    const size_t size = bytes / PIECES;
    if (size == 0 || size % PAGE)
        return 2;
    start();
    CUfunction affine = kernel("affine");
    CUdeviceptr pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = allocate(size);
        for (size_t page = 0; page < size / PAGE; page++)
            QUIET(cuMemsetD32Async(pieces[i] + page * PAGE, initial(i, page), PAGE / 4, NULL));
    }
    QUIET(cuCtxSynchronize());
    printf("measured ready\n");
    fflush(stdout);
    unsigned turns = 0, factor = 3, term = 7, count = (unsigned)(size / sizeof(unsigned));
    char line[64];
    while (alone < 0 ? fgets(line, sizeof line, stdin) != NULL : (int)turns < alone) {
        double began = now();
        if (alone >= 0 || line[0] == 'w') {
            for (size_t i = 0; i < PIECES; i++)
                QUIET(LAUNCH(affine, count / THREADS, THREADS, NULL, &pieces[i], &count, &factor, &term));
            turns++;
        }
        if (alone < 0 && line[0] == 'r') {
            unsigned word;
            QUIET(cuMemcpyDtoH(&word, pieces[0], sizeof word));
        }
        QUIET(cuCtxSynchronize());
        if (alone < 0) {
            printf("measured turn %.9f\n", now() - began);
            fflush(stdout);
        }
    }
    unsigned *words = malloc(PAGE), wrong = 0;
    for (size_t i = 0; i < PIECES; i++)
        for (size_t page = 0; page < size / PAGE; page++) {
            unsigned wanted = initial(i, page);
            for (unsigned turn = 0; turn < turns; turn++)
                wanted = wanted * factor + term;
            QUIET(cuMemcpyDtoH(words, pieces[i] + page * PAGE, PAGE));
            for (size_t at = 0; at < PAGE / sizeof *words; at++)
                wrong += words[at] != wanted;
        }
    free(words);
    EXPECT(wrong == 0);
    return check_failed || check_repeated;
}
