/* Preloaded before the guest library: raises SIGUSR1 in the middle of the main thread's next sendmsg or
 * mprotect, as `raise_in` says, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic(const char *) wanted = "";

void raise_in(const char *function) {
    atomic_store(&wanted, function);
}

int is_raised(void) {
    return atomic_load(&wanted)[0] == '\0';
}

static void passes(const char *function) {
    if (syscall(SYS_gettid) == getpid() && strcmp(atomic_load(&wanted), function) == 0) {
        atomic_store(&wanted, "");
        raise(SIGUSR1);
    }
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
    passes("sendmsg");
    return next(fd, message, flags);
}

int mprotect(void *address, size_t size, int protection) {
    int (*next)(void *, size_t, int) = dlsym(RTLD_NEXT, "mprotect");
    passes("mprotect");
    return next(address, size, protection);
}
