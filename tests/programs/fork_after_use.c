// A process that forks after CUDA was initialised: the child cannot use it, the parent is undisturbed.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

int main(void) {
    start();
    CUdeviceptr counter = allocate(4), other;
    CUfunction count_up = kernel("count_up");
    unsigned back = 0;
    OK(cuMemsetD32(counter, 1, 1));
    OK(LAUNCH(count_up, 1, 1, NULL, &counter));
    pid_t child = fork();
    if (child == 0) {
        FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&other, 4096));
        FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
        FAILS(CUDA_ERROR_NOT_INITIALIZED, LAUNCH(count_up, 1, 1, NULL, &counter));
        _exit(check_failed);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(LAUNCH(count_up, 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&back, counter, sizeof back));
    EXPECT(back == 3);
    return check_failed;
}
