// The parent of a process ends before it, and what the child does goes on.
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

int main(int count, char **arguments) {
    if (count >
        1) { // the grandchild, whose standard input ends when its parent has; it tells its grandparent alone
        EXPECT(freopen("/dev/null", "w", stdout) != NULL);
        start();
        CUdeviceptr words = allocate(4096);
        OK(cuMemsetD32(words, 7, 1024));
        char byte;
        EXPECT(read(0, &byte, 1) == 0);
        unsigned back = 0;
        OK(LAUNCH(kernel("count_up"), 1, 1, NULL, &words));
        OK(cuMemcpyDtoH(&back, words, sizeof back));
        EXPECT(back == 8);
        EXPECT(write(3, check_failed ? "n" : "y", 1) == 1);
        return check_failed;
    }
    int alive[2], over[2];
    EXPECT(pipe(alive) == 0 && pipe(over) == 0);
    fflush(stdout);
    pid_t parent = fork();
    if (parent == 0) {
        start();
        OK(cuCtxSynchronize());
        fflush(stdout);
        if (fork() == 0) {
            dup2(alive[0], 0);
            close(alive[1]);
            close(over[0]);
            dup2(over[1], 3);
            execl(arguments[0], arguments[0], "grandchild", (char *)NULL);
            _exit(99);
        }
        return check_failed;
    }
    close(alive[0]);
    close(over[1]);
    int status = -1;
    waitpid(parent, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(alive[1]);
    char byte = 'n';
    EXPECT(read(over[0], &byte, 1) == 1 && byte == 'y'); // what the grandchild found
    EXPECT(read(over[0], &byte, 1) == 0);                // it has ended
    return check_failed;
}
