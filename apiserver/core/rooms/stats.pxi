# Room: stats
# Holds: counters.
# Lock: none; each counter has one writer: the dispatcher, or under sending.lock whoever answers
# Home: stats
# Changed by: graphs receive send session_ops
# Read by: scrub service stillness
# Offers: begin_stats count may_never_end now restore_stats

cdef struct Calls:              # of one operation
    uint64_t succeeded
    uint64_t failed
    uint64_t timed
    uint64_t nanoseconds        # of those that were timed, from dispatch to answer

cdef struct Stats:
    uint64_t calls_async
    uint64_t calls_sync
    uint64_t bytes_in
    uint64_t bytes_out          # s.sending.lock
    uint64_t launches
    uint64_t busy_nanoseconds
    Calls unanswered[GF_OP_COUNT]
    Calls answered[GF_OP_COUNT] # s.sending.lock
    uint64_t unsupported[GF_FUNCTION_LAST - GF_FUNCTION_FIRST + 1]  # as the guest counts them
