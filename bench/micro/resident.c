// A program that a benchmark moves about: it holds BYTES of device memory, and its loop writes the last HOT
// of them again and again, or only waits for the device. For each line on stdin it prints the longest time
// that one turn of the loop took since the line before; at the end of input it looks whether its memory is
// right.
//
//   resident BYTES HOT
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum { PAGE = 2 << 20, THREADS = 256 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Whether a line came; false at the end of input.
static int line_came(int *ended) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (poll(&input, 1, 0) <= 0)
        return 0;
    *ended = read(STDIN_FILENO, &byte, 1) <= 0;
    return !*ended;
}

static unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    QUIET(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

int main(int argc, char **argv) {
    const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    const size_t hot = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
    if (bytes == 0 || bytes % PAGE || hot % PAGE || hot > bytes)
        return 2;
    start();
    CUdeviceptr memory = allocate(bytes), warm = memory + bytes - hot;
    CUfunction affine = kernel("affine");
    unsigned count = (unsigned)(hot / sizeof(unsigned)), factor = 1, term = 1, turns = 0, wrong = 0;
    for (size_t page = 0; page < bytes / PAGE; page++)
        QUIET(cuMemsetD32Async(memory + page * PAGE, (unsigned)page + 1, PAGE / 4, NULL));
    double longest = 0, shortest = 1e9;
    for (int ended = 0; !ended;) {
        double began = now();
        if (hot) {
            QUIET(LAUNCH(affine, count / THREADS, THREADS, NULL, &warm, &count, &factor, &term));
            turns++;
        }
        QUIET(cuCtxSynchronize());
        double took = now() - began;
        longest = took < longest ? longest : took;
        shortest = took < shortest ? took : shortest;
        if (line_came(&ended)) {
            printf("measured pause %.9g\n", longest - shortest);
            fflush(stdout);
            longest = 0;
            shortest = 1e9;
        }
    }
    for (size_t page = 0; page < bytes / PAGE; page++) {
        CUdeviceptr address = memory + page * PAGE;
        unsigned wanted = (unsigned)page + 1 + (address < warm ? 0 : turns);
        wrong += word_at(address) != wanted || word_at(address + PAGE - 4) != wanted;
    }
    EXPECT(wrong == 0);
    return check_failed || check_repeated;
}
