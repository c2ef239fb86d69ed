// A timer's signals interrupt system calls all the time, and the program starts children: calls and copies
// are whole.
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { WORDS = 3 << 20, ROUNDS = 5 };

static volatile sig_atomic_t ticks;

static void on_tick(int signal) {
    (void)signal;
    ticks++;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_tick}; // no SA_RESTART
    const struct itimerval timer = {{0, 500}, {0, 500}};
    unsigned *host = malloc(WORDS * 4), count = WORDS, wrong = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    start();
    CUfunction fill = kernel("fill");
    CUdeviceptr a = allocate(WORDS * 4), b = allocate(WORDS * 4);
    for (unsigned round = 0; round < ROUNDS; round++) {
        QUIET(LAUNCH(fill, WORDS / 256, 256, NULL, &a, &count, &round));
        QUIET(cuMemcpyDtoH(host, a, WORDS * 4));
        QUIET(cuMemcpyHtoD(b, host, WORDS * 4));
        memset(host, 0, WORDS * 4);
        QUIET(cuMemcpyDtoH(host, b, WORDS * 4));
        for (unsigned i = 0; i < WORDS; i++)
            wrong += host[i] != (i ^ round) * 2654435761u;
        const pid_t child = fork();
        if (child == 0)
            execlp("true", "true", (char *)NULL);
        while (waitpid(child, NULL, 0) < 0) {
        }
    }
    EXPECT(wrong == 0);
    EXPECT(ticks > 0);
    digest("host", host, WORDS * 4);
    free(host);
    return check_failed;
}
