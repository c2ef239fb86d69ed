// The program ends while one function runs and another waits for its turn; neither holds it up. A child of it
// has no part in them.
#include "driver.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int begun, second;

static void CUDA_CB forever(void *unused) {
    (void)unused;
    begun = 1;
    for (;;)
        pause();
}

static void CUDA_CB never(void *unused) {
    (void)unused;
    second = 1;
}

int main(void) {
    CUstream stream;
    unsigned value = 0;
    start();
    CUdeviceptr counter = allocate(4);
    OK(cuMemsetD32(counter, 2, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&value, counter, 4));
    EXPECT(value == 3);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, forever, NULL));
    OK(cuLaunchHostFunc(stream, never, NULL));
    while (!begun) {
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(second);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(second == 0);
    fflush(stdout);
    _exit(check_failed);
}
