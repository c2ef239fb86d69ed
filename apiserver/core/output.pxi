# What kernels print. The driver writes it to our standard output, which is a file in memory: a pipe could fill up and
# stop the device. Every reply that may vouch for a kernel is preceded by what has been printed until then.

cdef enum:
    OUTPUT_LIMIT = 256 << 20    # that may be waiting for a guest that never takes it


cdef int capture_output(Session *s) noexcept nogil:
    s.printed = memfd_create(b"gpuferry-output", MFD_CLOEXEC)
    s.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if s.printed < 0 or s.bell < 0 or dup2(s.printed, 1) < 0:
        return cu.CUDA_ERROR_OPERATING_SYSTEM
    return cu.CUDA_SUCCESS


cdef void expect_output(Session *s) noexcept nogil:
    """A kernel was launched, and its guest may never ask for what it prints: the shell looks after it."""
    if s.resting:
        s.resting = False
        eventfd_write(s.bell, 1)


cdef void forward_output(Session *s) noexcept nogil:
    """s.send_lock is held."""
    cdef Piece part
    cdef ssize_t n
    cdef gf_header header
    memset(&header, 0, sizeof(header))
    header.op = GF_OP_OUTPUT
    part.slot = -1
    while s.queued <= QUEUE_LIMIT:
        part.data = <uint8_t *>malloc(GF_OUTPUT_MAX)
        n = pread(s.printed, part.data, GF_OUTPUT_MAX, s.forwarded)
        if n <= 0:
            free(part.data)
            return
        fallocate(s.printed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s.forwarded, n)
        s.forwarded += n
        header.size = <uint32_t>(sizeof(header) + n)
        push(s, <uint8_t *>&header, sizeof(header), n, part)
    if lseek(s.printed, 0, SEEK_END) - s.forwarded > OUTPUT_LIMIT:
        end_session(s, b"device error: kernels print, and the guest does not read")


cdef void discard_output(Session *s) noexcept nogil:
    """The next guest sees nothing of the last one's."""
    pthread_mutex_lock(&s.send_lock)
    s.forwarded = 0
    ftruncate(s.printed, 0)
    lseek(s.printed, 0, SEEK_SET)
    pthread_mutex_unlock(&s.send_lock)
