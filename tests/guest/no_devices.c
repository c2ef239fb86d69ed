// A program in whose root there is no /dev: a session begins all the same.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "check.h"

int open(const char *path, int flags, ...) {
    if (strncmp(path, "/dev/", 5) == 0) {
        errno = ENOENT;
        return -1;
    }
    return openat(AT_FDCWD, path, flags & ~O_CREAT);
}

int main(void) {
    EXPECT(open("/dev/null", O_RDONLY) < 0);
    OK(cuInit(0));
    return check_failed;
}
