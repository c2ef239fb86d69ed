# What kernels print. The driver writes it to our standard output, which is a file in memory: a pipe could fill up and
# stop the device. Every reply that may vouch for a kernel is preceded by what has been printed until then.

cdef enum:
    OUTPUT_LIMIT = 256 << 20    # that may be waiting for a guest that never takes it
    STANDARD_OUTPUT = 0         # what an OUTPUT's `status` names: 0 as ever, and the other by its descriptor
    STANDARD_ERROR = 2


cdef int prepare_messages(Session *s) noexcept nogil:
    """Before the driver is asked for anything: a simulated device then says there too what it says on our stderr."""
    cdef char text[16]
    s.sending.output.said = memfd_create(b"gpuferry-messages", MFD_CLOEXEC)
    if s.sending.output.said < 0:
        return cu.CUDA_ERROR_OPERATING_SYSTEM
    snprintf(text, sizeof(text), b"%d", s.sending.output.said)
    setenv(b"GPUFERRY_SIM_MESSAGES", text, 1)
    snprintf(text, sizeof(text), b"%d", OUTPUT_LIMIT)  # between two looks a kernel could fill all memory
    setenv(b"GPUFERRY_SIM_OUTPUT", text, 1)
    return cu.CUDA_SUCCESS


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


cdef void forward(Session *s, int source, uint64_t *forwarded, int target) noexcept nogil:
    """Sends what came into one of the files; target: the guest's descriptor. s.sending.lock is held."""
    cdef Piece part
    cdef ssize_t n
    cdef gf_header header
    memset(&header, 0, sizeof(header))
    header.op = GF_OP_OUTPUT
    header.status = target
    part.slot = -1
    while s.sending.queued <= QUEUE_LIMIT:
        part.data = <uint8_t *>malloc(GF_OUTPUT_MAX)
        n = pread(source, part.data, GF_OUTPUT_MAX, forwarded[0])
        if n <= 0:
            free(part.data)
            return
        fallocate(source, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, forwarded[0], n)
        forwarded[0] += n
        header.size = <uint32_t>(sizeof(header) + n)
        push(s, <uint8_t *>&header, sizeof(header), n, part)
    if lseek(source, 0, SEEK_END) - forwarded[0] > OUTPUT_LIMIT:
        end_session(s, DEVICE_FAILED, b"device error: kernels print, and the guest does not read")


cdef inline bint takes_messages(Session *s) noexcept nogil:
    """Guests of release 0.1 write to their standard output what names the other one: of what a device says they are
    sent nothing. Whoever speaks this operation, which came with the messages, is newer.
    """
    return not s.input.limited or s.input.spoken[GF_OP_sessionMemoryClaim]


cdef void forget_messages(Session *s) noexcept nogil:
    """They are in the monitor's log."""
    cdef int64_t end = lseek(s.sending.output.said, 0, SEEK_END)
    if end > 0:
        fallocate(s.sending.output.said, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end)


cdef void forward_output(Session *s) noexcept nogil:
    """s.sending.lock is held."""
    forward(s, s.sending.output.printed, &s.sending.output.forwarded, STANDARD_OUTPUT)
    if takes_messages(s):
        forward(s, s.sending.output.said, &s.sending.output.said_forwarded, STANDARD_ERROR)
    else:
        forget_messages(s)


cdef void empty_file(int file) noexcept nogil:
    ftruncate(file, 0)
    lseek(file, 0, SEEK_SET)


cdef void discard_output(Session *s) noexcept nogil:
    """The next guest sees nothing of the last one's."""
    pthread_mutex_lock(&s.sending.lock)
    s.sending.output.forwarded = 0
    s.sending.output.said_forwarded = 0
    empty_file(s.sending.output.printed)
    empty_file(s.sending.output.said)
    pthread_mutex_unlock(&s.sending.lock)


cdef void begin_output(Session *s) noexcept nogil:
    s.sending.output.resting = True
