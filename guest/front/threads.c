/* How many threads the program has. A process ends when its last thread does, and those of the driver are not
 * the program's: so it is told of the last one's end. Threads that libc makes for itself are not counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include "front.h"
#include "interposed.h"

/* What a thread is to run, as POSIX or as C has it. */
struct start {
    void *(*run)(void *);
    thrd_start_t run_c;
    void *argument;
};

static atomic_int threads = 1; /* the main one */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static void (*_Atomic when_ended)(void);

/* Others' destructors come first: this one asks for as many rounds as there are. */
static void ends(void *round) {
    uintptr_t rounds = (uintptr_t)round;
    if (rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(key, (void *)(rounds + 1)) == 0) {
        return;
    }
    void (*tell)(void) = atomic_load(&when_ended);
    if (atomic_fetch_sub(&threads, 1) == 1 && tell != NULL) {
        tell();
    }
}

static void alone(void) {
    atomic_store(&threads, 1);
}

static void begin(void) {
    pthread_key_create(&key, ends);
    pthread_atfork(NULL, NULL, alone);
}

static void count_this(void) {
    pthread_once(&once, begin);
    pthread_setspecific(key, (void *)1);
}

__attribute__((constructor)) static void count_main(void) {
    if (syscall(SYS_gettid) == getpid()) {
        count_this();
    }
}

static struct start take(struct start *start) {
    struct start taken = *start;
    free(start);
    count_this();
    return taken;
}

static void *run(void *start) {
    struct start taken = take(start);
    return taken.run(taken.argument);
}

static int run_c(void *start) {
    struct start taken = take(start);
    return taken.run_c(taken.argument);
}

static struct start *counted(struct start like) {
    struct start *start = malloc(sizeof *start);
    if (start != NULL) {
        *start = like;
        atomic_fetch_add(&threads, 1);
    }
    return start;
}

static void not_begun(struct start *start) {
    atomic_fetch_sub(&threads, 1);
    free(start);
}

static int create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                  void *(*function)(void *), void *restrict argument) {
    struct start *start = counted((struct start){.run = function, .argument = argument});
    int error = start == NULL ? EAGAIN : GF_NEXT(pthread_create)(thread, attributes, run, start);
    if (start != NULL && error != 0) {
        not_begun(start);
    }
    return error;
}

#pragma GCC visibility push(default)

__typeof__(pthread_create) pthread_create __attribute__((alias("create")));

/* Where this library comes behind libc, nobody's threads are counted, and the next pthread_create is none. */
void gpuferry_when_threads_ended(void (*tell)(void)) {
    if (dlsym(RTLD_DEFAULT, "pthread_create") == (void *)create) {
        atomic_store(&when_ended, tell);
    }
}

int gpuferry_begin_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument) {
    __typeof__(pthread_create) *next = GF_NEXT(pthread_create);
    return (next != NULL ? next : pthread_create)(thread, attributes, function, argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument) {
    struct start *start = counted((struct start){.run_c = function, .argument = argument});
    int error = start == NULL ? thrd_nomem : GF_NEXT(thrd_create)(thread, run_c, start);
    if (start != NULL && error != thrd_success) {
        not_begun(start);
    }
    return error;
}
