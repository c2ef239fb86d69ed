# The session, and the process that serves it: one room for each owner (core/rooms, DESIGN.md). Locks are taken in this
# order: move.lock, sending.lock, lock; window.lock last.
# Of no room: codec declarations exhaustion session types session_ops scrub tensor_maps

cdef struct Session:
    pthread_mutex_t lock        # of every room that says so
    pthread_cond_t changed      # with it: something that somebody may wait for
    Device device
    Budget budget
    Window window
    Book book
    Sharing sharing
    Records records
    Aliases aliases
    Objects objects
    Images images
    Links links
    Graphs graphs
    Arrays arrays
    Journal journal
    Streams streams
    Staging staging
    Waiters waiters
    HostCalls host_calls
    Input input
    Connection connection
    Sending sending
    State state
    Stats stats
    Move move
    Arrival arrival
    Turn turn
    Residency residency

ctypedef int (*Handler)(Session *, Frame *) noexcept nogil
