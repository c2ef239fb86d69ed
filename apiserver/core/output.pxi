# What kernels print. The driver writes it to our standard output, which is a file in memory: a pipe could fill up and
# stop the device. Every reply that may vouch for a kernel is preceded by what has been printed until then.

cdef enum:
    OUTPUT_LIMIT = 256 << 20    # that may be waiting for a guest that never takes it


cdef int capture_output(Session *s) noexcept nogil:
    s.sending.output.printed = memfd_create(b"gpuferry-output", MFD_CLOEXEC)
    s.sending.output.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if s.sending.output.printed < 0 or s.sending.output.bell < 0 or dup2(s.sending.output.printed, 1) < 0:
        return cu.CUDA_ERROR_OPERATING_SYSTEM
    return cu.CUDA_SUCCESS


cdef void expect_output(Session *s) noexcept nogil:
    """A kernel was launched, and its guest may never ask for what it prints: the shell looks after it."""
    if s.sending.output.resting:
        s.sending.output.resting = False
        eventfd_write(s.sending.output.bell, 1)


cdef void forward_output(Session *s) noexcept nogil:
    """s.sending.lock is held."""
    cdef Piece part
    cdef ssize_t n
    cdef gf_header header
    memset(&header, 0, sizeof(header))
    header.op = GF_OP_OUTPUT
    part.slot = -1
    while s.sending.queued <= QUEUE_LIMIT:
        part.data = <uint8_t *>malloc(GF_OUTPUT_MAX)
        n = pread(s.sending.output.printed, part.data, GF_OUTPUT_MAX, s.sending.output.forwarded)
        if n <= 0:
            free(part.data)
            return
        fallocate(s.sending.output.printed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s.sending.output.forwarded, n)
        s.sending.output.forwarded += n
        header.size = <uint32_t>(sizeof(header) + n)
        push(s, <uint8_t *>&header, sizeof(header), n, part)
    if lseek(s.sending.output.printed, 0, SEEK_END) - s.sending.output.forwarded > OUTPUT_LIMIT:
        end_session(s, DEVICE_FAILED, b"device error: kernels print, and the guest does not read")


cdef void discard_output(Session *s) noexcept nogil:
    """The next guest sees nothing of the last one's."""
    pthread_mutex_lock(&s.sending.lock)
    s.sending.output.forwarded = 0
    ftruncate(s.sending.output.printed, 0)
    lseek(s.sending.output.printed, 0, SEEK_SET)
    pthread_mutex_unlock(&s.sending.lock)


cdef void begin_output(Session *s) noexcept nogil:
    s.sending.output.resting = True
