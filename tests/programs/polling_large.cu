// A program and a kernel that runs hand memory of 256 KiB to each other by words in it, without a call:
// memory that was allocated for both, and registered memory.
#include <ctime>
#include <sys/mman.h>

#include "check.h"

constexpr unsigned FIRST = 2048, WORDS = 1 << 16, SAID = WORDS + 1024, ALL = WORDS + 2048, ROUNDS = 4,
                   PATIENCE = 60;

// In each round: waits for its number in the first word, adds it to all words from the third page on, and
// says so far behind them.
__global__ void add_in_rounds(volatile unsigned *box) {
    for (unsigned round = 1; round <= ROUNDS; round++) {
        while (box[0] != round) {
        }
        __threadfence_system();
        for (unsigned i = FIRST; i < WORDS; i++)
            box[i] = box[i] + round;
        __threadfence_system();
        box[SAID] = round;
    }
}

static bool becomes(volatile unsigned *word, unsigned wanted) {
    const time_t late = time(nullptr) + PATIENCE;
    while (*word != wanted && time(nullptr) < late) {
    }
    return *word == wanted;
}

static void talk(volatile unsigned *box, unsigned *seen) {
    unsigned wrong = 0;
    for (unsigned i = 0; i < ALL; i++)
        box[i] = 0;
    add_in_rounds<<<1, 1>>>(seen);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (unsigned i = FIRST; i < WORDS; i++)
            box[i] = i * round;
        // Comes first in the memory, and is to be seen last.
        box[0] = round;
        if (!becomes(&box[SAID], round)) { // the kernel waits for ever
            EXPECT(!"answered");
            exit(1);
        }
        for (unsigned i = FIRST; i < WORDS; i++)
            wrong += box[i] != i * round + round;
    }
    RT_OK(cudaDeviceSynchronize());
    EXPECT(wrong == 0);
}

int main() {
    unsigned *box, *seen;
    RT_OK(cudaHostAlloc(&box, ALL * sizeof *box, cudaHostAllocMapped));
    RT_OK(cudaHostGetDevicePointer(&seen, box, 0));
    talk(box, seen);
    RT_OK(cudaFreeHost(box));

    const int access = PROT_READ | PROT_WRITE;
    box = (unsigned *)mmap(nullptr, ALL * sizeof *box, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RT_OK(cudaHostRegister(box, ALL * sizeof *box, cudaHostRegisterMapped));
    RT_OK(cudaHostGetDevicePointer(&seen, box, 0));
    talk(box, seen);
    RT_OK(cudaHostUnregister(box));
    return check_failed;
}
