/* How long the thread of exchange.c rests, by a clock of its own: the first exchange takes the seconds that
 * are named, those after it none. Says after how many milliseconds each begins, and ends with the third. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"
#include "front.h"

static int64_t now = INT64_C(1000000000), ended, first;

int clock_gettime(clockid_t clock, struct timespec *time) {
    (void)clock;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    (void)left;
    now += wanted->tv_sec * INT64_C(1000000000) + wanted->tv_nsec;
    return 0;
}

static void exchange(void) {
    static int count;
    printf("%lld\n", (long long)((now - ended) / 1000000));
    fflush(stdout);
    if (++count == 3) {
        _exit(0);
    }
    now += count == 1 ? first : 0;
    ended = now;
    gf_exchange_soon();
}

int gpuferry_begin_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument) {
    return pthread_create(thread, attributes, function, argument);
}

int gf_put_aside(int descriptor) {
    return descriptor;
}

int main(int count, char **arguments) {
    first = count > 1 ? atoll(arguments[1]) * INT64_C(1000000000) : 0;
    ended = now;
    gf_exchange_begin(exchange);
    gf_exchange_soon();
    pause();
    return 0;
}
