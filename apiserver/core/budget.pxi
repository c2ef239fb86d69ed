# What a session makes this process keep in host memory: objects, frames, images, what is loaded of them, links, and
# what its guest has not acknowledged. It is counted where such a thing is made and where it ends. What is bounded by
# itself (staging, the queue of replies, tasks) is not.

cdef enum:
    DEFAULT_BUDGET = 4 << 10    # MiB, where the monitor says nothing
    OBJECT_COST = 1 << 10       # bytes of an object here and in the driver,
    CONTEXT_COST = 128 << 10    # and of a context
    KEPT_COST = 64              # of a frame, beside its bytes
    IMAGE_COST = 64 << 10       # of an image, beside its bytes
    LOAD_COST = 64 << 10        # of what is loaded of one, beside as many bytes


cdef inline void spend(Session *s, uint64_t size) noexcept nogil:
    """Counts what was made. s.lock is held."""
    s.budget.used += size


cdef inline void unspend(Session *s, uint64_t size) noexcept nogil:
    """It is gone. s.lock is held."""
    s.budget.used -= min(size, s.budget.used)


cdef void spend_apart(Session *s, int64_t size) noexcept nogil:
    """The same, or of less than nothing if it is gone, where s.lock is not held."""
    pthread_mutex_lock(&s.lock)
    if size >= 0:
        spend(s, size)
    else:
        unspend(s, -size)
    pthread_mutex_unlock(&s.lock)


cdef inline bint affords(Session *s, uint64_t size) noexcept nogil:
    """Whether so much more may be kept."""
    return s.budget.used <= s.budget.limit and size <= s.budget.limit - s.budget.used


cdef inline bint is_exhausted(Session *s) noexcept nogil:
    """Whether nothing more may be made. A call that makes something is refused then, before it is done: what is kept
    of one that was done is never lost, for the session could not move without it."""
    return s.budget.used >= s.budget.limit


cdef void begin_budget(Session *s, uint64_t limit) noexcept nogil:
    s.budget.limit = limit if limit > 0 else <uint64_t>DEFAULT_BUDGET << 20
    s.budget.used = 0
