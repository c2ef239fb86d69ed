// A program of several processes: children that are started while their parent uses the device work at once,
// whether they are forked and executed, or are grandchildren; a forked child of a process that used CUDA does
// not.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { WORDS = 1 << 20 };

static void work(unsigned value) {
    CUdeviceptr words = allocate(WORDS * sizeof(unsigned));
    unsigned back[2] = {0};
    OK(cuMemsetD32(words, value, WORDS));
    OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &words));
    OK(cuMemcpyDtoH(back, words, sizeof back));
    EXPECT(back[0] == value + 1 && back[1] == value);
    OK(cuMemFree(words));
}

static int ended_well(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static pid_t again(const char *program, const char *role) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, role, (char *)NULL);
        _exit(99);
    }
    return child;
}

int main(int count, char **arguments) {
    const char *role = count > 1 ? arguments[1] : "parent";
    printf("%s\n", role);
    start();
    work(100);
    if (strcmp(role, "parent") == 0) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr none;
            FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&none, 4096));
            FAILS(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
            _exit(check_failed);
        }
        EXPECT(ended_well(child));
        EXPECT(ended_well(again(arguments[0], "child")));
        EXPECT(ended_well(again(arguments[0], "second child")));
    } else if (strcmp(role, "child") == 0) {
        EXPECT(ended_well(again(arguments[0], "grandchild")));
    }
    work(200);
    return check_failed;
}
