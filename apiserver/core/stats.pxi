# Counters: calls by operation and their times, bytes, launches.


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


cdef void begin_stats(Session *s) noexcept nogil:
    memset(&s.stats, 0, sizeof(Stats))


cdef void restore_stats(Session *s, const Stats *stats) noexcept nogil:
    """As they were where the session comes from."""
    s.stats = stats[0]


cdef bint may_never_end(const Session *s) noexcept nogil:
    """Whether work may be under way that does not end by itself: kernels, or streams that wait for a value, or for an
    event of another process.
    """
    cdef int place
    cdef uint16_t op
    for place in range(GF_OP_COUNT):
        op = operations[place]
        if op == GF_OP_cuStreamWaitValue32_v2 or op == GF_OP_cuStreamWaitValue64_v2 or op == GF_OP_sessionImportEvent:
            if s.stats.unanswered[place].succeeded + s.stats.answered[place].succeeded > 0:
                return True
    return s.stats.launches > 0
