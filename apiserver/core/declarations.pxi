# Declarations of C: system calls, hashes, codecs; nothing of the session.

from libc.errno cimport EAGAIN, EBADMSG, EINTR, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport abort, calloc, free, getenv, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset, strlen, strncmp
from cython.operator cimport dereference, predecrement, preincrement
from libcpp.algorithm cimport sort
from libcpp.map cimport map as cpp_map
from libcpp.set cimport set as cpp_set
from libcpp.vector cimport vector
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, MADV_DONTNEED, MADV_HUGEPAGE,
    madvise, mmap, munmap
)
from posix.stdlib cimport setenv
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.uio cimport iovec

cimport cuda.bindings.cydriver as cu


cdef extern from * nogil:
    int ATOMIC_ACQUIRE "__ATOMIC_ACQUIRE"
    int ATOMIC_RELEASE "__ATOMIC_RELEASE"
    int ATOMIC_ACQ_REL "__ATOMIC_ACQ_REL"
    uint64_t atomic_load "__atomic_load_n"(uint64_t *word, int order)
    void atomic_store "__atomic_store_n"(uint64_t *word, uint64_t value, int order)
    uint64_t atomic_add "__atomic_fetch_add"(uint64_t *word, uint64_t value, int order)

cdef extern from "cuda.h" nogil:
    void *CU_LAUNCH_PARAM_END
    void *CU_LAUNCH_PARAM_BUFFER_POINTER
    void *CU_LAUNCH_PARAM_BUFFER_SIZE

cdef extern from "<string.h>" nogil:
    size_t strnlen(const char *text, size_t size)

cdef extern from "<poll.h>" nogil:
    short POLLIN, POLLOUT, POLLRDHUP, POLLHUP, POLLERR
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *signals)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, SHUT_RD, SHUT_RDWR, SHUT_WR
    int SOL_SOCKET, SO_TYPE, SOCK_STREAM, SCM_RIGHTS, MSG_CMSG_CLOEXEC
    ctypedef unsigned int socklen_t
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    cmsghdr *CMSG_NXTHDR(msghdr *message, cmsghdr *part)
    uint8_t *CMSG_DATA(cmsghdr *part)
    size_t CMSG_LEN(size_t size)
    ssize_t recvmsg(int fd, msghdr *message, int flags)
    int getsockopt(int fd, int level, int option, void *value, socklen_t *size)
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t recv(int fd, void *target, size_t size, int flags)
    int shutdown(int fd, int how)
    ssize_t send(int fd, const void *data, size_t size, int flags)

cdef extern from "<fcntl.h>" nogil:
    int FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE, O_CLOEXEC, F_DUPFD_CLOEXEC
    int fcntl(int fd, int command, ...)
    int fallocate(int fd, int mode, long offset, long size)

cdef extern from "<sys/mman.h>" nogil:
    unsigned int MFD_CLOEXEC
    int memfd_create(const char *name, unsigned int flags)

cdef extern from "<unistd.h>" nogil:
    int SEEK_SET, SEEK_END, STDERR_FILENO
    int close(int fd)
    int usleep(unsigned int microseconds)
    int dup2(int fd, int target)
    int dup3(int fd, int target, int flags)
    ssize_t pread(int fd, void *target, size_t size, long offset)
    ssize_t pwrite(int fd, const void *data, size_t size, long offset)
    ssize_t write(int fd, const void *data, size_t size)
    long lseek(int fd, long offset, int whence)
    int ftruncate(int fd, long size)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)
    int eventfd_write(int fd, uint64_t value)
    int eventfd_read(int fd, uint64_t *value)

cdef extern from "<dlfcn.h>" nogil:
    void *dlsym(void *handle, const char *name)
    void *RTLD_DEFAULT

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_trylock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_condattr_init(pthread_condattr_t *attributes)
    int pthread_condattr_setclock(pthread_condattr_t *attributes, int clock)
    int pthread_condattr_destroy(pthread_condattr_t *attributes)
    int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
    int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const timespec *until)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_broadcast(pthread_cond_t *condition)
    int pthread_create(pthread_t *thread, void *attributes, void *(*main)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)
    int pthread_equal(pthread_t one, pthread_t other)
    int pthread_detach(pthread_t thread)
    pthread_t pthread_self()

cdef extern from "<signal.h>" nogil:
    int SIGURG
    struct signal_action "sigaction":
        void (*sa_handler)(int) noexcept nogil
        int sa_flags
    int sigaction(int number, const signal_action *action, signal_action *previous)
    int pthread_kill(pthread_t thread, int number)

# What the counters of the first release counted, in the order of their wire ids.
cdef extern from *:
    """
    #include "gpuferry/operations.h"
    static const uint16_t gf_first_release[] = {
    #define GF_ID(id) id,
        GF_FIRST_RELEASE(GF_ID)
    #undef GF_ID
    };
    """
    const uint16_t *gf_first_release
    enum:
        GF_FIRST_RELEASE_COUNT
        GF_FIRST_RELEASE_FUNCTION_FIRST
        GF_FIRST_RELEASE_FUNCTION_LAST

cdef extern from "tls/records.h" nogil:
    enum:
        GF_TLS_STATE_MAX
    struct gf_tls:
        pass
    gf_tls *gf_tls_restore(const void *state, size_t size, char *why, size_t why_size)
    void gf_tls_end(gf_tls *tls)
    size_t gf_tls_save(const gf_tls *tls, void *state)
    ssize_t gf_tls_receive(gf_tls *tls, int fd, void *data, size_t size, int flags)
    ssize_t gf_tls_send(gf_tls *tls, int fd, const iovec *parts, int count, int flags)
    int gf_tls_flush(gf_tls *tls, int fd, int flags)
    bint gf_tls_has_output(const gf_tls *tls)
    bint gf_tls_has_input(const gf_tls *tls)

cdef extern from "wire/sha256.h" nogil:
    void gf_sha256(const void *data, size_t size, uint8_t *digest)

cdef extern from "wire/image_check.h" nogil:
    const char *gf_image_fault(const void *image, size_t size, bint is_input)

cdef extern from "wire/link_set.h" nogil:
    void *gf_link_set_wrap(const void *image, size_t size)

cdef extern from "gpuferry/results.h" nogil:
    bint gf_destroys_context(int result)

cdef extern from "wire/handle.h" nogil:
    enum:
        GF_HANDLE_TAG
        GF_HANDLE_SLOT_LIMIT
    uint32_t gf_handle_tag(uint64_t handle)
    uint32_t gf_handle_kind(uint64_t handle)
    uint16_t gf_handle_generation(uint64_t handle)
    uint64_t gf_handle_make(uint32_t kind, uint16_t generation, uint32_t slot)
    uint32_t gf_handle_slot(uint64_t handle)

cdef extern from "driver_interop/tensor_map.h" nogil:
    enum:
        GF_TENSOR_TILED
        GF_TENSOR_IM2COL
        GF_TENSOR_IM2COL_WIDE
    cdef struct gf_tensor_map:
        uint64_t address
        uint8_t form
        uint8_t type
        uint8_t rank
        uint8_t interleave
        uint8_t swizzle
        uint8_t promotion
        uint8_t fill
        uint8_t mode
        uint64_t strides[4]
        uint32_t dims[5]
        uint16_t box[5]
        uint8_t steps[5]
        int16_t lower[3]
        int16_t upper[3]
