// The floors of a migration's pause on the simulated device: what this machine's memory allows with no
// gpuferry in between. Prints seconds.
//
//   memory copy BYTES CHUNK THREADS    BYTES from one file in memory to a new one, in chunks
//   memory read BYTES CHUNK THREADS    BYTES of a file in memory, once
//
// Memory is what the simulated device makes of large writes: huge pages where the system has them.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HUGE = 2 << 20, COLLAPSE = 25 /* MADV_COLLAPSE */, MOST_THREADS = 256 };

static char *from, *to; // `to` NULL: only read
static size_t bytes, chunk;
static _Atomic size_t next;
static _Atomic uint64_t sum;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *new_memory(void) {
    int fd = memfd_create("floor", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        die("memory");
    char *room = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        die("addresses");
    room += HUGE - (uintptr_t)room % HUGE;
    if (mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        die("mapping");
    close(fd);
    return room;
}

static void make_huge(char *at, size_t size) {
    for (size_t i = 0; i < size; i += HUGE)
        at[i] = 1;
    madvise(at, size, COLLAPSE); // not everywhere
}

static uint64_t add_up(const uint64_t *words, size_t count) {
    uint64_t lanes[8] = {0};
    for (size_t i = 0; i < count; i += 8)
        for (int lane = 0; lane < 8; lane++)
            lanes[lane] += words[i + lane];
    for (int lane = 1; lane < 8; lane++)
        lanes[0] += lanes[lane];
    return lanes[0];
}

static void *work(void *unused) {
    size_t at;
    while ((at = atomic_fetch_add(&next, chunk)) < bytes) {
        size_t size = bytes - at < chunk ? bytes - at : chunk;
        if (to) {
            make_huge(to + at, size);
            memcpy(to + at, from + at, size);
        } else {
            atomic_fetch_add(&sum, add_up((const uint64_t *)(from + at), size / 8));
        }
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[MOST_THREADS];
    long count = argc == 5 ? strtol(argv[4], NULL, 0) : 0;
    if (count < 1 || count > MOST_THREADS)
        return 2;
    bytes = strtoull(argv[2], NULL, 0);
    chunk = strtoull(argv[3], NULL, 0);
    if (bytes == 0 || chunk == 0 || bytes % HUGE || chunk % HUGE)
        return 2;
    from = new_memory();
    for (size_t at = 0; at < bytes; at += HUGE) {
        make_huge(from + at, HUGE);
        memset(from + at, (int)(at / HUGE) | 1, HUGE);
    }
    if (strcmp(argv[1], "copy") == 0) {
        to = new_memory();
        make_huge(to, bytes); // given back at once: a virtual machine's host has given it then, too
        munmap(to, bytes);
        to = new_memory();
    }
    double began = now();
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            die("thread");
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double took = now() - began;
    if (to ? memcmp(from, to, bytes) != 0 : atomic_load(&sum) == 0)
        return 1;
    printf("%.9g\n", took);
    return 0;
}
