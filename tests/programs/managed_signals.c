// Memory that program and device share is there whatever signals are blocked: in a thread that blocks all, in
// one that was begun so, and in a handler that does. The mask is the one that the program has set.
#include <pthread.h>
#include <signal.h>

#include "driver.h"

enum { PAGE = 4096, PLACES = 6 };

static volatile unsigned *shared;
static CUdeviceptr memory;
static unsigned seen;

// The device writes the place's page, which the program then reads and writes.
static void device_writes(unsigned place, unsigned value) {
    QUIET(cuMemsetD32(memory + place * PAGE, value, 2));
    QUIET(cuCtxSynchronize());
}

static void *reads(void *place) {
    unsigned at = *(unsigned *)place * PAGE / 4;
    seen = shared[at]++;
    return NULL;
}

static void handler(int number) {
    (void)number;
    reads(&(unsigned){2});
}

int main(void) {
    sigset_t all, before, now;
    pthread_t thread;
    start();
    OK(cuMemAllocManaged(&memory, PLACES * PAGE, CU_MEM_ATTACH_GLOBAL));
    shared = (volatile unsigned *)memory;
    for (unsigned i = 0; i < PLACES; i++)
        shared[i * PAGE / 4] = 0;
    sigfillset(&all);
    EXPECT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGSEGV) == 1 &&
           sigismember(&now, SIGTERM) == 1);
    device_writes(0, 5);
    reads(&(unsigned){0});
    EXPECT(seen == 5 && shared[0] == 6);
    device_writes(1, 6);
    EXPECT(pthread_create(&thread, NULL, reads, &(unsigned){1}) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(seen == 6);
    EXPECT(sigprocmask(SIG_SETMASK, &before, &now) == 0 && sigismember(&now, SIGSEGV) == 1);
    EXPECT(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGSEGV) == 0);

    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask);
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    device_writes(2, 7);
    EXPECT(raise(SIGUSR1) == 0);
    EXPECT(seen == 7);

    // what was written with all signals blocked is what the device reads
    unsigned value = 0;
    OK(cuMemcpyDtoH(&value, memory, 4));
    EXPECT(value == 6);
    return check_failed;
}
