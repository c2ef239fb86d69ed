# The log of a session that outlives its connection (WIRE.md 9): what goes to the guest is copied into it and written
# from there; it keeps it until the guest says that it has it. s.sending.lock is held wherever nothing else is said.


cdef Part *new_part(Session *s) noexcept nogil:
    """At the end of the log. s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    cdef Part *part = log.spare
    if part != NULL:
        log.spare = part.next
        log.spares -= 1
    else:
        part = <Part *>malloc(sizeof(Part))
        spend_apart(s, sizeof(Part))
    part.next = NULL
    part.start = log.end
    part.used = 0
    return part


cdef void free_part(Session *s, Part *part) noexcept nogil:
    """The last ones are kept: what comes from the system anew costs more than the copy into it. s.sending.lock is
    held."""
    cdef Log *log = &s.sending.log
    if log.spares < SPARE_PARTS:
        part.next = log.spare
        log.spare = part
        log.spares += 1
    else:
        spend_apart(s, -<int64_t>sizeof(Part))
        free(part)


cdef void free_parts(Session *s, Part **first) noexcept nogil:
    cdef Part *part
    while first[0] != NULL:
        part = first[0]
        first[0] = part.next
        spend_apart(s, -<int64_t>sizeof(Part))
        free(part)


cdef void log_bytes(Session *s, const uint8_t *data, size_t size) noexcept nogil:
    """s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    cdef Part *part
    cdef size_t room
    while size > 0:
        part = log.last
        if part == NULL or part.used == PART_SIZE:
            part = new_part(s)
            if log.first == NULL:
                log.first = part
            else:
                log.last.next = part
            log.last = part
            if log.next == NULL:
                log.next = part
        room = min(size, PART_SIZE - part.used)
        memcpy(part.data + part.used, data, room)
        part.used += room
        log.end += room
        data += room
        size -= room


cdef void read_log(Session *s, uint64_t at, void *target, size_t size) noexcept nogil:
    """Bytes that the log holds. s.sending.lock is held."""
    cdef Part *part = s.sending.log.first
    cdef size_t skip, some
    while size > 0:
        skip = at - part.start
        if skip < part.used:
            some = min(size, part.used - skip)
            memcpy(target, part.data + skip, some)
            target = <uint8_t *>target + some
            at += some
            size -= some
        part = part.next


cdef void find_boundary(Session *s, uint64_t after) noexcept nogil:
    """Moves on to the first beginning of a frame that is not earlier. s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    cdef uint32_t size
    while log.boundary < after:
        read_log(s, log.boundary, &size, sizeof(size))
        log.boundary += size


cdef void forget_log(Session *s, uint64_t until) noexcept nogil:
    """Frees what lies before this byte of the stream. s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    cdef Part *part
    find_boundary(s, until)
    if until > log.begin:
        log.begin = until
    while log.first != NULL and log.first.start + log.first.used <= until and log.first.used == PART_SIZE:
        part = log.first
        log.first = part.next
        if log.next == part:
            log.next = part.next
        if log.last == part:
            log.last = NULL
        free_part(s, part)


cdef void drop_log(Session *s) noexcept nogil:
    """The session is over."""
    cdef Log *log = &s.sending.log
    pthread_mutex_lock(&s.sending.lock)
    s.sending.unwritable = True
    free_parts(s, &log.first)
    free_parts(s, &log.spare)
    log.spares = 0
    log.last = NULL
    log.next = NULL
    s.sending.queued = 0
    pthread_mutex_unlock(&s.sending.lock)


cdef bint flush_log(Session *s) noexcept nogil:
    """Writes what the socket takes; False: it takes no more, or is broken. s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    cdef Part *part
    cdef ssize_t n
    while log.written < log.end and s.connection.attached and not s.sending.frozen:
        part = log.next
        if log.written >= part.start + part.used:
            log.next = part.next
            continue
        n = write_some(s, part.data + (log.written - part.start), part.start + part.used - log.written, NULL, 0, 0)
        if n > 0:
            log.written += n
        elif n == 0:
            break
        else:
            detach(s)
    if s.connection.attached and not s.sending.frozen and write_rest(s) < 0:
        detach(s)
    s.sending.queued = log.end - log.written
    if s.sending.queued <= QUEUE_LIMIT:
        pthread_cond_broadcast(&s.sending.drained)
    return s.sending.queued == 0 and is_written(s)


cdef void push_log(Session *s, uint8_t *head, size_t head_size, size_t payload_size, Piece piece) noexcept nogil:
    """Sends one frame, in order. s.sending.lock is held."""
    cdef Log *log = &s.sending.log
    if s.sending.unwritable:
        release_piece(s, piece)
        return
    log_bytes(s, head, head_size)
    log_bytes(s, piece.data, payload_size)
    release_piece(s, piece)
    if log.end - log.begin > GF_UNACKNOWLEDGED_MAX:
        end_session(s, MALFORMED, b"malformed: the guest acknowledges nothing")
        shutdown(s.connection.fd, SHUT_RD)     # wakes the dispatcher
    if not flush_log(s) and not wake_sender(s):
        end_session(s, LOST, b"connection lost")


cdef void send_log(Session *s) noexcept nogil:
    """The sender of a session that outlives its connection. s.sending.lock is held."""
    cdef pollfd poller
    poller.events = POLLOUT
    while True:
        if flush_log(s):
            if s.sending.stopping:
                return
            pthread_cond_wait(&s.sending.sendable, &s.sending.lock)
        elif s.sending.stopping:
            return
        elif not s.connection.attached or s.sending.frozen:
            pthread_cond_wait(&s.sending.sendable, &s.sending.lock)
        else:
            poller.fd = s.connection.fd
            pthread_mutex_unlock(&s.sending.lock)
            poll(&poller, 1, 100)
            pthread_mutex_lock(&s.sending.lock)


cdef int acknowledged(Session *s, Frame *f, uint64_t received) noexcept nogil:
    """The guest has this much; it may say so again after a resumption."""
    cdef bint possible
    pthread_mutex_lock(&s.sending.lock)
    possible = received <= s.sending.log.written
    if possible:
        forget_log(s, received)
    pthread_mutex_unlock(&s.sending.lock)
    return cu.CUDA_SUCCESS if possible else malformed(s, f, b"acknowledges what was never sent")


cdef void begin_log(Session *s) noexcept nogil:
    cdef Log *log = &s.sending.log
    log.begin = 0
    log.written = 0
    log.boundary = 0
    log.end = 0


cdef void restore_log(Session *s, uint64_t begin, uint64_t written, uint64_t boundary,
                      vector[uint8_t] *content) noexcept nogil:
    """As it was where the session comes from."""
    cdef Log *log = &s.sending.log
    log.begin = begin
    log.end = begin
    log_bytes(s, content.data(), content.size())
    log.written = written
    log.boundary = boundary
    if not flush_log(s):
        wake_sender(s)


cdef void rewind_log(Session *s, uint64_t to) noexcept nogil:
    """The guest has everything before, and nothing of the rest."""
    cdef Log *log = &s.sending.log
    forget_log(s, to)
    log.written = to
    log.next = log.first


cdef bint may_go_on_at(Session *s, uint64_t at) noexcept nogil:
    """Whether the guest can have what lies before this byte, and nothing after it is gone."""
    return s.sending.log.begin <= at <= s.sending.log.written
