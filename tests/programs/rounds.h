// Programs that may be moved to another device while they live: they work in rounds, before each of which
// they say so and read a line from stdin (at its end they go on at once). Their first argument is the number
// of rounds. Device pointers go to stderr, at the start and at the end: they must be the same.
#ifndef ROUNDS_H
#define ROUNDS_H

#include "check.h"

enum { ROUNDS = 4, MOST_ROUNDS = 100 };

static inline int rounds_wanted(int argc, char **argv) {
    const int wanted = argc > 1 ? atoi(argv[1]) : ROUNDS;
    return wanted < 1 ? 1 : wanted > MOST_ROUNDS ? MOST_ROUNDS : wanted;
}

static inline void begin_round(int round) {
    printf("round %d\n", round);
    fflush(stdout);
    int read;
    do
        read = getchar();
    while (read != '\n' && read != EOF);
}

static inline void show_pointer(const char *when, const char *what, uint64_t pointer) {
    fprintf(stderr, "%s: %s %#llx\n", when, what, (unsigned long long)pointer);
}

#endif
