// A process that forks before its first CUDA call: parent and child each work on their own.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static void work(unsigned value) {
    start();
    CUdeviceptr counter = allocate(4);
    unsigned back = 0;
    OK(cuMemsetD32(counter, value, 1));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&back, counter, sizeof back));
    EXPECT(back == value + 1);
}

int main(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(100);
        exit(check_failed);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    work(200);
    return check_failed;
}
