# Room: budget
# Holds: how much host memory the session has made this process keep, and how much that may be.
# Lock: lock; also read without it, as a hint
# Home: budget
# Changed by: -
# Read by: service
# Offers: affords begin_budget is_exhausted spend spend_apart unspend

cdef struct Budget:
    uint64_t limit
    uint64_t used
