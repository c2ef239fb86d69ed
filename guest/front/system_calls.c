/* The kernel does not raise a fault where a system call reads or writes memory that cannot be touched: the
 * call fails with EFAULT. So what libc offers to move bytes to and from files and sockets first has the pages
 * there, of memory that program and device share; and once more if another thread has given them away
 * meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "front.h"
#include "interposed.h"

static bool (*_Atomic reach_first)(uint64_t address, uint64_t size, bool write);

static inline bool reach(const void *address, uint64_t size, bool write) {
    bool (*first)(uint64_t, uint64_t, bool) = atomic_load_explicit(&reach_first, memory_order_acquire);
    return __builtin_expect(first != NULL, 0) && first((uint64_t)address, size, write);
}

static bool reach_parts(const struct iovec *parts, int count, bool write) {
    bool changed = false;
    for (int i = 0; i < count; i++) {
        changed = reach(parts[i].iov_base, parts[i].iov_len, write) || changed;
    }
    return changed;
}

static bool reach_message(const struct msghdr *message, bool write) {
    return reach_parts(message->msg_iov, (int)message->msg_iovlen, write);
}

/* `reached` has the memory there, and says whether anything had to be done for it. */
#define CALL(reached, call)                                                                                  \
    ({                                                                                                       \
        ssize_t moved;                                                                                       \
        (void)(reached);                                                                                     \
        do {                                                                                                 \
            moved = (call);                                                                                  \
        } while (__builtin_expect(moved < 0 && errno == EFAULT, 0) && (reached));                            \
        moved;                                                                                               \
    })

#pragma GCC visibility push(default)

void gpuferry_reach_first(bool (*first)(uint64_t address, uint64_t size, bool write)) {
    atomic_store(&reach_first, first);
}

ssize_t read(int fd, void *to, size_t size) {
    return CALL(reach(to, size, true), GF_NEXT(read)(fd, to, size));
}

ssize_t write(int fd, const void *from, size_t size) {
    return CALL(reach(from, size, false), GF_NEXT(write)(fd, from, size));
}

ssize_t pread(int fd, void *to, size_t size, off_t offset) {
    return CALL(reach(to, size, true), GF_NEXT(pread)(fd, to, size, offset));
}

ssize_t pread64(int fd, void *to, size_t size, off64_t offset) {
    return CALL(reach(to, size, true), GF_NEXT(pread64)(fd, to, size, offset));
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t offset) {
    return CALL(reach(from, size, false), GF_NEXT(pwrite)(fd, from, size, offset));
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t offset) {
    return CALL(reach(from, size, false), GF_NEXT(pwrite64)(fd, from, size, offset));
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
    return CALL(reach_parts(parts, count, true), GF_NEXT(readv)(fd, parts, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return CALL(reach_parts(parts, count, false), GF_NEXT(writev)(fd, parts, count));
}

ssize_t recv(int fd, void *to, size_t size, int flags) {
    return CALL(reach(to, size, true), GF_NEXT(recv)(fd, to, size, flags));
}

ssize_t send(int fd, const void *from, size_t size, int flags) {
    return CALL(reach(from, size, false), GF_NEXT(send)(fd, from, size, flags));
}

ssize_t recvfrom(int fd, void *restrict to, size_t size, int flags, __SOCKADDR_ARG address,
                 socklen_t *restrict length) {
    return CALL(reach(to, size, true), GF_NEXT(recvfrom)(fd, to, size, flags, address, length));
}

ssize_t sendto(int fd, const void *from, size_t size, int flags, __CONST_SOCKADDR_ARG address,
               socklen_t length) {
    return CALL(reach(from, size, false), GF_NEXT(sendto)(fd, from, size, flags, address, length));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    return CALL(reach_message(message, true), GF_NEXT(recvmsg)(fd, message, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return CALL(reach_message(message, false), GF_NEXT(sendmsg)(fd, message, flags));
}

/* libc hands the program's memory to the kernel here too, by functions of its own. */
size_t fread(void *restrict to, size_t size, size_t count, FILE *restrict file) {
    reach(to, size * count, true);
    return GF_NEXT(fread)(to, size, count, file);
}

size_t fwrite(const void *restrict from, size_t size, size_t count, FILE *restrict file) {
    reach(from, size * count, false);
    return GF_NEXT(fwrite)(from, size, count, file);
}
