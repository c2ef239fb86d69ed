// Children that no handler of pthread_atfork hears of (_Fork, clone), and children of children: none can use
// CUDA, none hangs, not at its exit either, and none disturbs its parent or what its own child has open.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static CUdeviceptr counter, managed;
static CUfunction count_up;

static void refused(void) {
    CUdeviceptr other;
    int count = 0;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&other, 4096));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemFree(counter));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, LAUNCH(count_up, 1, 1, NULL, &counter));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
}

static void ends(pid_t child) {
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void undisturbed(unsigned wanted) {
    unsigned back = 0;
    OK(LAUNCH(count_up, 1, 1, NULL, &counter));
    OK(cuMemcpyDtoH(&back, counter, sizeof back));
    EXPECT(back == wanted);
}

// What was opened since is still open in the child of a child.
static void has_a_child(void) {
    int first = open("/dev/null", O_RDONLY), last = first;
    for (int i = 0; i < 64; i++)
        last = open("/dev/null", O_RDONLY);
    pid_t child = fork();
    if (child == 0) {
        int closed = 0;
        for (int fd = first; fd <= last; fd++)
            closed += fcntl(fd, F_GETFD) < 0;
        EXPECT(closed == 0);
        refused();
        _exit(check_failed);
    }
    ends(child);
}

int main(void) {
    start();
    counter = allocate(4);
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    count_up = kernel("count_up");
    OK(cuMemsetD32(counter, 1, 1));
    undisturbed(2);

    printf("fork\n");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        refused();
        has_a_child();
        _exit(check_failed);
    }
    ends(child);
    undisturbed(3);

    printf("_Fork\n");
    fflush(stdout);
    child = _Fork();
    if (child == 0) {
        refused();
        has_a_child();
        _exit(check_failed);
    }
    ends(child);
    undisturbed(4);

    printf("clone\n");
    fflush(stdout);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        refused();
        exit(check_failed); // with all that runs at an exit
    }
    ends(child);
    undisturbed(5);

    printf("memory that is shared with the device\n");
    fflush(stdout);
    OK(cuMemsetD32(managed, 7, 1)); // the page is the device's
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        (void)*(volatile unsigned *)managed; // which is not the child's: it may die of it
        _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &(int){0}, 0) == child);
    EXPECT(*(volatile unsigned *)managed == 7);
    undisturbed(6);

    printf("vfork\n");
    fflush(stdout);
    child = vfork();
    if (child == 0) { // on its parent's memory: whatever it is told
        cuMemsetD32(counter, 6, 1);
        _exit(0);
    }
    ends(child);
    OK(cuMemsetD32(counter, 6, 1));
    undisturbed(7);
    return check_failed;
}
