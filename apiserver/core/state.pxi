# How a session stands: whether it is served or ending, why it ended, and the first failure of a call that nobody waited
# for, which the next reply tells.

cdef int ONGOING = node_pb2.CAUSE_UNSPECIFIED
cdef int CLOSED = node_pb2.CAUSE_CLOSED
cdef int LOST = node_pb2.CAUSE_LOST
cdef int MALFORMED = node_pb2.CAUSE_MALFORMED
cdef int REVOKED = node_pb2.CAUSE_REVOKED
cdef int DEVICE_FAILED = node_pb2.CAUSE_DEVICE
cdef int MOVED = node_pb2.CAUSE_MOVED

cdef Piece NO_PIECE
NO_PIECE.data = NULL
NO_PIECE.slot = -1


cdef bint wait_for_at_most(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t ns) noexcept nogil:
    """A wait that also ends after so many nanoseconds, a second at most. False: it did."""
    cdef timespec until
    clock_gettime(CLOCK_MONOTONIC, &until)
    until.tv_nsec += ns
    if until.tv_nsec >= 1000000000:
        until.tv_nsec -= 1000000000
        until.tv_sec += 1
    return pthread_cond_timedwait(condition, mutex, &until) == 0


cdef void wait_briefly(pthread_cond_t *condition, pthread_mutex_t *mutex) noexcept nogil:
    """A wait that also ends after 100 ms, so that the end of a session is seen whoever signals it."""
    wait_for_at_most(condition, mutex, 100000000)


cdef void end_session(Session *s, int cause, const char *reason) noexcept nogil:
    """The first cause counts; the reason is for people. Called with or without s.sending.lock, never with s.lock."""
    pthread_mutex_lock(&s.lock)
    if not s.state.ending:
        s.state.ending = True
        s.state.cause = cause
        snprintf(s.state.reason, REASON_SIZE, b"%s", reason)
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    ring_turn(s)


cdef int malformed(Session *s, Frame *f, const char *what) noexcept nogil:
    cdef char text[REASON_SIZE]
    snprintf(text, REASON_SIZE, b"malformed: operation %u: %s", <unsigned int>f.op, what)
    end_session(s, MALFORMED, text)
    return ENDED


cdef void latch(Session *s, uint16_t op, int status) noexcept nogil:
    """Keeps the first failure of an async call for the next reply."""
    note_status(s, status)
    if gf_destroys_context(status):
        return      # each call in that context says so; whoever asks next may ask about another
    pthread_mutex_lock(&s.lock)
    if s.state.latched == cu.CUDA_SUCCESS:
        s.state.latched = status
        s.state.latched_op = op
    pthread_mutex_unlock(&s.lock)


cdef void begin_state(Session *s) noexcept nogil:
    s.state.ending = False
    s.state.cause = ONGOING
    s.state.reason[0] = 0
    s.state.latched = cu.CUDA_SUCCESS
    s.state.latched_op = 0
    s.state.holding = False
    s.state.left = False
    s.state.serving = True


cdef void restore_latched(Session *s, int status, uint16_t op) noexcept nogil:
    """As it was where the session comes from."""
    pthread_mutex_lock(&s.lock)
    s.state.latched = status
    s.state.latched_op = op
    pthread_mutex_unlock(&s.lock)


cdef void take_latched(Session *s, int32_t *status, uint16_t *op) noexcept nogil:
    """The next reply tells it."""
    pthread_mutex_lock(&s.lock)
    status[0] = s.state.latched
    op[0] = s.state.latched_op
    s.state.latched = cu.CUDA_SUCCESS
    s.state.latched_op = 0
    pthread_mutex_unlock(&s.lock)
