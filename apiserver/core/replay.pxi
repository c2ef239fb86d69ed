# A session that outlives its connection (WIRE.md 9). What goes to the guest is copied into a log and written from there;
# the log keeps it until the guest says that it has it. Another connection goes on at the byte that the guest lacks.

cdef Part *new_part(Session *s) noexcept nogil:
    """At the end of the log. s.send_lock is held."""
    cdef Part *part = s.spare
    if part != NULL:
        s.spare = part.next
        s.spares -= 1
    else:
        part = <Part *>malloc(sizeof(Part))
    part.next = NULL
    part.start = s.log_end
    part.used = 0
    return part


cdef void free_part(Session *s, Part *part) noexcept nogil:
    """The last ones are kept: what comes from the system anew costs more than the copy into it. s.send_lock is held."""
    if s.spares < SPARE_PARTS:
        part.next = s.spare
        s.spare = part
        s.spares += 1
    else:
        free(part)


cdef void free_parts(Part **first) noexcept nogil:
    cdef Part *part
    while first[0] != NULL:
        part = first[0]
        first[0] = part.next
        free(part)


cdef void log_bytes(Session *s, const uint8_t *data, size_t size) noexcept nogil:
    """s.send_lock is held."""
    cdef Part *part
    cdef size_t room
    while size > 0:
        part = s.log_tail
        if part == NULL or part.used == PART_SIZE:
            part = new_part(s)
            if s.log == NULL:
                s.log = part
            else:
                s.log_tail.next = part
            s.log_tail = part
            if s.log_next == NULL:
                s.log_next = part
        room = min(size, PART_SIZE - part.used)
        memcpy(part.data + part.used, data, room)
        part.used += room
        s.log_end += room
        data += room
        size -= room


cdef void read_log(Session *s, uint64_t at, void *target, size_t size) noexcept nogil:
    """Bytes that the log holds. s.send_lock is held."""
    cdef Part *part = s.log
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
    """Moves on to the first beginning of a frame that is not earlier. s.send_lock is held."""
    cdef uint32_t size
    while s.log_boundary < after:
        read_log(s, s.log_boundary, &size, sizeof(size))
        s.log_boundary += size


cdef void forget_log(Session *s, uint64_t until) noexcept nogil:
    """Frees what lies before this byte of the stream. s.send_lock is held."""
    cdef Part *part
    find_boundary(s, until)
    if until > s.log_begin:
        s.log_begin = until
    while s.log != NULL and s.log.start + s.log.used <= until and s.log.used == PART_SIZE:
        part = s.log
        s.log = part.next
        if s.log_next == part:
            s.log_next = part.next
        if s.log_tail == part:
            s.log_tail = NULL
        free_part(s, part)


cdef void drop_log(Session *s) noexcept nogil:
    """The session is over."""
    pthread_mutex_lock(&s.send_lock)
    s.unwritable = True
    free_parts(&s.log)
    free_parts(&s.spare)
    s.spares = 0
    s.log_tail = NULL
    s.log_next = NULL
    s.queued = 0
    pthread_mutex_unlock(&s.send_lock)


cdef bint flush_log(Session *s) noexcept nogil:
    """Writes what the socket takes; False: it takes no more, or is broken. s.send_lock is held."""
    cdef Part *part
    cdef ssize_t n
    while s.log_written < s.log_end and s.attached and not s.frozen:
        part = s.log_next
        if s.log_written >= part.start + part.used:
            s.log_next = part.next
            continue
        n = write_some(s, part.data + (s.log_written - part.start), part.start + part.used - s.log_written, NULL, 0, 0)
        if n > 0:
            s.log_written += n
        elif n == 0:
            break
        else:
            detach(s)
    s.queued = s.log_end - s.log_written
    if s.queued <= QUEUE_LIMIT:
        pthread_cond_broadcast(&s.drained)
    return s.queued == 0


cdef void push_log(Session *s, uint8_t *head, size_t head_size, size_t payload_size, Piece piece) noexcept nogil:
    """Sends one frame, in order. s.send_lock is held."""
    if s.unwritable:
        release_piece(s, piece)
        return
    log_bytes(s, head, head_size)
    log_bytes(s, piece.data, payload_size)
    release_piece(s, piece)
    if s.log_end - s.log_begin > GF_UNACKNOWLEDGED_MAX:
        end_session(s, b"malformed: the guest acknowledges nothing")
        shutdown(s.fd, SHUT_RD)     # wakes the dispatcher
    if not flush_log(s) and not wake_sender(s):
        end_session(s, b"connection lost")


cdef void send_log(Session *s) noexcept nogil:
    """The sender of a session that outlives its connection. s.send_lock is held."""
    cdef pollfd poller
    poller.events = POLLOUT
    while True:
        if flush_log(s):
            if s.sender_stopping:
                return
            pthread_cond_wait(&s.sendable, &s.send_lock)
        elif s.sender_stopping:
            return
        elif not s.attached or s.frozen:
            pthread_cond_wait(&s.sendable, &s.send_lock)
        else:
            poller.fd = s.fd
            pthread_mutex_unlock(&s.send_lock)
            poll(&poller, 1, 100)
            pthread_mutex_lock(&s.send_lock)


cdef int acknowledged(Session *s, Frame *f, uint64_t received) noexcept nogil:
    """The guest has this much; it may say so again after a resumption."""
    cdef bint possible
    pthread_mutex_lock(&s.send_lock)
    possible = received <= s.log_written
    if possible:
        forget_log(s, received)
    pthread_mutex_unlock(&s.send_lock)
    return cu.CUDA_SUCCESS if possible else malformed(s, f, b"acknowledges what was never sent")


cdef void acknowledge(Session *s, uint64_t received) noexcept nogil:
    cdef uint8_t frame[ACKNOWLEDGE_SIZE]
    cdef gf_header *header = <gf_header *>frame
    memset(frame, 0, ACKNOWLEDGE_SIZE)
    header.size = ACKNOWLEDGE_SIZE
    header.op = GF_OP_ACKNOWLEDGE
    s.received_told = received
    memcpy(frame + sizeof(gf_header), &received, 8)
    pthread_mutex_lock(&s.send_lock)
    push_log(s, frame, ACKNOWLEDGE_SIZE, 0, NO_PIECE)
    pthread_mutex_unlock(&s.send_lock)


cdef void detach(Session *s) noexcept nogil:
    """The connection is broken; whoever reads or writes it sees that too."""
    pthread_mutex_lock(&s.lock)
    s.attached = False
    shutdown(s.fd, 2)
    pthread_mutex_unlock(&s.lock)


cdef ssize_t receive_attached(Session *s, void *target, size_t size, bint between) noexcept nogil:
    """As `receive`, from as many connections as it takes."""
    cdef ssize_t n = 0
    cdef bint interrupted
    while True:
        pthread_mutex_lock(&s.lock)
        while not s.attached and not s.ending and not (between and (s.holding or s.stale > 0)):
            wait_briefly(&s.changed, &s.lock)
        if s.ending or (between and (s.holding or s.stale > 0)):
            pthread_mutex_unlock(&s.lock)
            return 0 if s.ending else HELD
        s.receiving = True
        pthread_mutex_unlock(&s.lock)
        while True:
            n = recv(s.fd, target, size, 0)
            interrupted = n < 0 and errno == EINTR
            if not interrupted or (between and s.holding):
                break
        pthread_mutex_lock(&s.lock)
        s.receiving = False
        if n > 0:
            s.received += n
            if s.by_link:
                find_relayed_tail(s, <const uint8_t *>target, n)
        elif not interrupted and not s.ending:
            s.attached = False
            leave_relayed_tail(s)
            interrupted = s.stale > 0
        pthread_cond_broadcast(&s.changed)
        pthread_mutex_unlock(&s.lock)
        if n > 0 and s.received - s.received_told >= GF_ACKNOWLEDGE_EVERY:
            # The last that comes over a link may be no part of the stream: MOVED.
            acknowledge(s, s.received - sizeof(gf_header) if s.by_link else s.received)
        if n > 0 or interrupted:
            return n if n > 0 else HELD


cdef bint resume_session(Session *s, int fd, const uint8_t *proof, uint64_t theirs) noexcept nogil:
    """Goes on with another connection, whose guest has `theirs` bytes of ours; False: that cannot be."""
    cdef uint8_t frame[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>frame
    cdef gf_resumed *resumed = <gf_resumed *>(frame + sizeof(gf_header))
    cdef size_t size = sizeof(gf_header) + sizeof(gf_resumed)
    cdef bint fine
    pthread_mutex_lock(&s.send_lock)
    fine = (s.resumable or s.following) and not s.ending and not s.unwritable and s.log_begin <= theirs <= s.log_written
    if fine:
        detach(s)
    pthread_mutex_lock(&s.lock)
    if fine:
        while s.receiving:      # the dispatcher, which the end of the old connection wakes
            pthread_cond_wait(&s.changed, &s.lock)
        leave_relayed_tail(s)
        memset(frame, 0, size)
        header.size = <uint32_t>size
        header.op = GF_OP_RESUMED
        memcpy(resumed.proof, proof, sizeof(resumed.proof))
        resumed.received = s.received
        # A connection as fresh as this one takes it at once; if it does not, the guest comes again.
        if dup3(fd, s.fd, O_CLOEXEC) >= 0 and send(s.fd, frame, size, MSG_NOSIGNAL) == <ssize_t>size:
            s.attached = True
            s.frozen = s.frozen and not s.following
            s.following = False
            s.by_link = False
            s.received_told = s.received
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    if fine:
        if s.resumable:
            forget_log(s, theirs)
            s.log_written = theirs
            s.log_next = s.log
        if not s.resumable or not flush_log(s):
            wake_sender(s)
    pthread_mutex_unlock(&s.send_lock)
    return fine


# The guest of a session that came from another machine still speaks over the link, by way of a relay, until it follows (WIRE.md 10).

cdef void find_relayed_tail(Session *s, const uint8_t *data, size_t size) noexcept nogil:
    """Of what came by way of a relay. Whoever resumes the session must not be told that it was received. s.lock is held."""
    cdef gf_header *header = &s.relayed_head
    cdef bint moved = s.relayed_tail == sizeof(gf_header)
    cdef size_t some
    while size > 0 and not moved:
        if s.relayed_missing > 0:
            some = min(size, s.relayed_missing)
            s.relayed_missing -= some
        else:
            some = min(size, sizeof(gf_header) - s.relayed_tail)
            memcpy(<uint8_t *>header + s.relayed_tail, data, some)
            s.relayed_tail += some
            moved = s.relayed_tail == sizeof(gf_header) and header.op == GF_OP_MOVED
            if s.relayed_tail == sizeof(gf_header) and not moved:
                s.relayed_tail = 0
                s.relayed_missing = max(<size_t>header.size, sizeof(gf_header)) - sizeof(gf_header)
        data += some
        size -= some


cdef void leave_relayed_tail(Session *s) noexcept nogil:
    """The connection that it came by is no more. The dispatcher takes it out of its buffer. s.lock is held."""
    s.received -= s.relayed_tail
    s.stale += s.relayed_tail
    s.relayed_tail = 0


cdef void drop_stale(Session *s) noexcept nogil:
    """The dispatcher, between two frames. s.lock is held."""
    s.end -= s.stale
    s.stale = 0


cdef void say_last(Session *s) noexcept nogil:
    """To a guest that does not count bytes, so that it knows that it has got everything. Nobody else writes."""
    cdef gf_header header
    cdef size_t sent = 0
    cdef ssize_t n = 0
    cdef pollfd poller
    memset(&header, 0, sizeof(header))
    header.size = sizeof(header)
    header.op = GF_OP_MOVED
    poller.fd = s.fd
    poller.events = POLLOUT
    while sent < sizeof(header) and n >= 0 and not s.ending:
        n = write_some(s, <uint8_t *>&header, sizeof(header), NULL, 0, sent)
        if n > 0:
            sent += n
        elif n == 0:
            poll(&poller, 1, 100)


cdef int guest_moved(Session *s, Frame *f) noexcept nogil:
    """It comes with another connection; what is to be said on this one is said to the end."""
    cdef bint here
    if s.end > s.begin:
        return malformed(s, f, b"more after the last frame of a connection")
    pthread_mutex_lock(&s.lock)
    here = s.stale > 0          # quicker than the end of its old connection, if that had one
    s.stale = 0
    if s.resumable and not here:
        s.received -= sizeof(gf_header)
        s.relayed_tail = 0
    pthread_mutex_unlock(&s.lock)
    if here:
        return cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.send_lock)
    while (s.log_written < s.log_end and s.attached and s.by_link if s.resumable else s.queue != NULL) and not s.ending:
        wait_briefly(&s.drained, &s.send_lock)
    pthread_mutex_lock(&s.lock)
    here = not s.by_link
    if not here:
        s.attached = False
        s.following = True
        s.frozen = True
    pthread_mutex_unlock(&s.lock)
    if not here and not s.resumable:
        pthread_mutex_unlock(&s.send_lock)
        say_last(s)
        pthread_mutex_lock(&s.send_lock)
    if s.following:
        shutdown(s.fd, SHUT_WR)
    pthread_mutex_unlock(&s.send_lock)
    eventfd_write(s.bell, 1)
    return cu.CUDA_SUCCESS


cdef bint wait_for_guest(Session *s, bint between) noexcept nogil:
    """Until it has followed; False: it is not waited for any more, or something is to be done meanwhile."""
    cdef bint here
    pthread_mutex_lock(&s.lock)
    while s.following and not s.ending and not (between and s.holding):
        wait_briefly(&s.changed, &s.lock)
    here = not s.following and not s.ending
    pthread_mutex_unlock(&s.lock)
    return here
