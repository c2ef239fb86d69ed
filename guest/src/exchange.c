#include "exchange.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "aside.h"
#include "thread.h"

#define STACK_SIZE (256u << 10)
#define SOON_NS    500000   /* after the program touched the memory, for the first time since there is work */
#define LATEST_NS  16000000 /* each exchange takes the pages away, and they are brought again */
#define PART       8        /* of the time, one in so many and one goes to exchanges, which hold up calls */
#define REST_NS    1000000000 /* the most: a network that stood still would be followed by a longer silence */

static int touched;       /* eventfd */
static _Atomic bool told; /* the thread, which has not come to it */
static _Atomic long pause_ns;
static void (*_Atomic exchange_now)(void);

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pause_for(int64_t ns) {
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static void *run(void *unused) {
    int64_t earliest = 0;
    for (;;) {
        uint64_t count;
        if (read(touched, &count, sizeof count) < 0) {
            break; /* the program has closed what is not its own */
        }
        long pause = atomic_load(&pause_ns);
        int64_t owed = earliest - now_ns();
        pause_for(owed > pause ? owed : pause);
        atomic_store(&told, false);
        int64_t began = now_ns();
        atomic_load (&exchange_now)();
        int64_t ended = now_ns(), rest = PART * (ended - began);
        earliest = ended + (rest < REST_NS ? rest : REST_NS);
        long later = pause * 2 < LATEST_NS ? pause * 2 : LATEST_NS;
        atomic_compare_exchange_strong(&pause_ns, &pause, later);
    }
    return unused;
}

static void start(void) {
    touched = gf_put_aside(eventfd(0, EFD_CLOEXEC));
    if (touched < 0 || !gf_thread_begin(run, NULL, STACK_SIZE)) {
        atomic_store(&told, true); /* then it is exchanged in calls only */
    }
}

void gf_exchange_begin(void (*exchange)(void)) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    atomic_store(&exchange_now, exchange);
    atomic_store(&pause_ns, SOON_NS);
    pthread_once(&once, start);
}

void gf_exchange_soon(void) {
    if (!atomic_exchange(&told, true)) {
        uint64_t one = 1;
        if (write(touched, &one, sizeof one) < 0) {
            /* as above */
        }
    }
}
