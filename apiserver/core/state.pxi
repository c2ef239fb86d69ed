# How a session stands: its end, its latched failure.

cdef Piece NO_PIECE
NO_PIECE.data = NULL
NO_PIECE.slot = -1


cdef void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex) noexcept nogil:
    """A wait that also ends after 100 ms, so that the end of a session is seen whoever signals it."""
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_nsec += 100000000
    if until.tv_nsec >= 1000000000:
        until.tv_nsec -= 1000000000
        until.tv_sec += 1
    pthread_cond_timedwait(condition, mutex, &until)


cdef void end_session(Session *s, const char *reason) noexcept nogil:
    """The first reason counts. Called with or without s.send_lock, never with s.lock."""
    pthread_mutex_lock(&s.lock)
    if not s.ending:
        s.ending = True
        snprintf(s.reason, REASON_SIZE, b"%s", reason)
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef int malformed(Session *s, Frame *f, const char *what) noexcept nogil:
    cdef char text[REASON_SIZE]
    snprintf(text, REASON_SIZE, b"malformed: operation %u: %s", <unsigned int>f.op, what)
    end_session(s, text)
    return ENDED


cdef inline bint destroys_context(int status) noexcept nogil:
    return (status == cu.CUDA_ERROR_ILLEGAL_ADDRESS or status == cu.CUDA_ERROR_LAUNCH_FAILED
            or status == cu.CUDA_ERROR_LAUNCH_TIMEOUT or status == cu.CUDA_ERROR_ASSERT
            or status == cu.CUDA_ERROR_HARDWARE_STACK_ERROR or status == cu.CUDA_ERROR_ILLEGAL_INSTRUCTION
            or status == cu.CUDA_ERROR_MISALIGNED_ADDRESS or status == cu.CUDA_ERROR_INVALID_ADDRESS_SPACE
            or status == cu.CUDA_ERROR_INVALID_PC or status == cu.CUDA_ERROR_ECC_UNCORRECTABLE
            or status == cu.CUDA_ERROR_NVLINK_UNCORRECTABLE
            or status == cu.CUDA_ERROR_EXTERNAL_DEVICE)


cdef inline void note_status(Session *s, int status) noexcept nogil:
    if status > 0 and destroys_context(status):
        s.broken = True


cdef void latch(Session *s, uint16_t op, int status) noexcept nogil:
    """Keeps the first failure of an async call for the next reply."""
    note_status(s, status)
    pthread_mutex_lock(&s.lock)
    if s.latched == cu.CUDA_SUCCESS:
        s.latched = status
        s.latched_op = op
    pthread_mutex_unlock(&s.lock)


cdef inline uint64_t now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <uint64_t>time.tv_sec * 1000000000 + time.tv_nsec


cdef inline void count(Calls *calls, Frame *f, int status) noexcept nogil:
    """A call is done; to be told to ask again is no failure."""
    if status == cu.CUDA_SUCCESS or status == cu.CUDA_ERROR_NOT_READY:
        calls.succeeded += 1
    else:
        calls.failed += 1
    if f.started != 0:
        calls.timed += 1
        calls.nanoseconds += now() - f.started


cdef inline int enter(Session *s, Context *context) noexcept nogil:
    """Makes a context current on the dispatcher, if it is not."""
    if context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    if s.current == context:
        return cu.CUDA_SUCCESS
    cdef int status = cu.cuCtxSetCurrent(context.cu)
    s.current = context if status == cu.CUDA_SUCCESS else NULL
    return status
