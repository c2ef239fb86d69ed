# What becomes of the process when it has no memory left. Cython would turn a failed `new` into an exception of Python,
# for which whoever holds s.lock would wait for the GIL, and whoever has that may be waiting for s.lock.

cdef extern from "<new>" namespace "std" nogil:
    ctypedef void (*new_handler)() noexcept
    new_handler set_new_handler(new_handler handler)


cdef void end_without_memory() noexcept nogil:
    """Called by each `new` that fails. The session ends with its API server, as after any crash."""
    cdef const char *text = b"gpuferry: this API server has no memory left, and ends\n"
    write(STDERR_FILENO, text, strlen(text))
    abort()


set_new_handler(end_without_memory)
