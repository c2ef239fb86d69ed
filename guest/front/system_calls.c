/* The kernel does not raise a fault where a system call reads or writes memory that cannot be touched: the
 * call fails with EFAULT. So what libc offers to move bytes to and from files and sockets first has the pages
 * there, of memory that program and device share; and once more if another thread has given them away
 * meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
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

static bool reach_parts(const struct iovec *parts, size_t count, bool write) {
    bool changed = false;
    for (size_t i = 0; i < count && atomic_load_explicit(&reach_first, memory_order_relaxed) != NULL; i++) {
        changed = reach(parts[i].iov_base, parts[i].iov_len, write) || changed;
    }
    return changed;
}

static bool reach_message(const struct msghdr *message, bool write) {
    bool changed = reach(message, sizeof *message, write);
    changed = reach(message->msg_name, message->msg_namelen, write) || changed;
    changed = reach(message->msg_control, message->msg_controllen, write) || changed;
    return reach_parts(message->msg_iov, message->msg_iovlen, write) || changed;
}

static bool reach_messages(const struct mmsghdr *messages, unsigned count, bool write) {
    bool changed = reach(messages, count * sizeof *messages, true);
    for (unsigned i = 0; i < count && atomic_load_explicit(&reach_first, memory_order_relaxed) != NULL; i++) {
        changed = reach_message(&messages[i].msg_hdr, write) || changed;
    }
    return changed;
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

/* Of a function that older releases of libc have not: a program that asks for it by a weak name finds ours.
 */
static ssize_t lacks(void) {
    errno = ENOSYS;
    return -1;
}

#define NEXT_OR_NONE(name, ...) (GF_NEXT(name) != NULL ? GF_NEXT(name)(__VA_ARGS__) : lacks())

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
    return CALL(reach_parts(parts, (size_t)count, true), GF_NEXT(readv)(fd, parts, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return CALL(reach_parts(parts, (size_t)count, false), GF_NEXT(writev)(fd, parts, count));
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    return CALL(reach_parts(parts, (size_t)count, true), GF_NEXT(preadv)(fd, parts, count, offset));
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return CALL(reach_parts(parts, (size_t)count, true), GF_NEXT(preadv64)(fd, parts, count, offset));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return CALL(reach_parts(parts, (size_t)count, false), GF_NEXT(pwritev)(fd, parts, count, offset));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return CALL(reach_parts(parts, (size_t)count, false), GF_NEXT(pwritev64)(fd, parts, count, offset));
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return CALL(reach_parts(parts, (size_t)count, true),
                NEXT_OR_NONE(preadv2, fd, parts, count, offset, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return CALL(reach_parts(parts, (size_t)count, true),
                NEXT_OR_NONE(preadv64v2, fd, parts, count, offset, flags));
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return CALL(reach_parts(parts, (size_t)count, false),
                NEXT_OR_NONE(pwritev2, fd, parts, count, offset, flags));
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return CALL(reach_parts(parts, (size_t)count, false),
                NEXT_OR_NONE(pwritev64v2, fd, parts, count, offset, flags));
}

/* What a pipe is given lies in these pages, what it gives comes into them. */
ssize_t vmsplice(int fd, const struct iovec *parts, size_t count, unsigned flags) {
    return CALL(reach_parts(parts, count, true), GF_NEXT(vmsplice)(fd, parts, count, flags));
}

/* The other process may be this one. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *parts, unsigned long count, const struct iovec *there,
                         unsigned long there_count, unsigned long flags) {
    return CALL(reach_parts(there, there_count, false) | reach_parts(parts, count, true),
                GF_NEXT(process_vm_readv)(pid, parts, count, there, there_count, flags));
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *parts, unsigned long count,
                          const struct iovec *there, unsigned long there_count, unsigned long flags) {
    return CALL(reach_parts(parts, count, false) | reach_parts(there, there_count, true),
                GF_NEXT(process_vm_writev)(pid, parts, count, there, there_count, flags));
}

ssize_t getrandom(void *to, size_t size, unsigned flags) {
    return CALL(reach(to, size, true), NEXT_OR_NONE(getrandom, to, size, flags));
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

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout) {
    return (int)CALL(reach_messages(messages, count, true),
                     GF_NEXT(recvmmsg)(fd, messages, count, flags, timeout));
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    return (int)CALL(reach_messages(messages, count, false), GF_NEXT(sendmmsg)(fd, messages, count, flags));
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
