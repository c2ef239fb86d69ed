#include "aside.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Below the 1024 that are usual; a higher number makes the kernel's table of every process larger. */
#define HIGH 896

/* A daemon closes what is open, and the next files that it opens have the lowest numbers: under ours it would
 * read and write our frames. One that closed its standard streams prints to whatever has their numbers. */
int gf_put_aside(int fd) {
    if (fd < 0) {
        return fd;
    }
    int saved = errno;
    struct rlimit limit;
    int high =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1024 ? (int)(limit.rlim_cur * 7 / 8) : HIGH;
    int put = fcntl(fd, F_DUPFD_CLOEXEC, high);
    if (put < 0 && fd <= STDERR_FILENO) {
        put = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    }
    if (put >= 0) {
        close(fd);
    }
    errno = saved;
    return put >= 0 ? put : fd;
}
