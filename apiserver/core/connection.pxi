# A session that outlives its connection (WIRE.md 9). What goes to the guest is copied into a log and written from
# there; the log keeps it until the guest says that it has it. Another connection goes on at the byte that the guest
# lacks.


cdef void acknowledge(Session *s, uint64_t received) noexcept nogil:
    cdef uint8_t frame[ACKNOWLEDGE_SIZE]
    cdef gf_header *header = <gf_header *>frame
    memset(frame, 0, ACKNOWLEDGE_SIZE)
    header.size = ACKNOWLEDGE_SIZE
    header.op = GF_OP_ACKNOWLEDGE
    s.connection.told = received
    memcpy(frame + sizeof(gf_header), &received, 8)
    pthread_mutex_lock(&s.sending.lock)
    push_log(s, frame, ACKNOWLEDGE_SIZE, 0, NO_PIECE)
    pthread_mutex_unlock(&s.sending.lock)


cdef void detach(Session *s) noexcept nogil:
    """The connection is broken; whoever reads or writes it sees that too."""
    pthread_mutex_lock(&s.lock)
    s.connection.attached = False
    shutdown(s.connection.fd, 2)
    pthread_mutex_unlock(&s.lock)


cdef bint is_farewell(const uint8_t *data, size_t size) noexcept nogil:
    """Whether the guest's last frame is the end of what came: it waits to hear that it did. Data that looks like it costs
    an acknowledgement."""
    cdef gf_header header
    if size < sizeof(header):
        return False
    memcpy(&header, data + size - sizeof(header), sizeof(header))
    return header.op == GF_OP_sessionClose and header.size == sizeof(header)


cdef ssize_t receive_attached(Session *s, void *target, size_t size, bint between) noexcept nogil:
    """As `receive`, from as many connections as it takes."""
    cdef ssize_t n = 0
    cdef bint interrupted
    cdef uint64_t had
    while True:
        pthread_mutex_lock(&s.lock)
        while not s.connection.attached and not s.state.ending \
                and not (between and (s.state.holding or s.connection.stale > 0)):
            if s.turn.held:
                pthread_mutex_unlock(&s.lock)
                rest_turn(s)
                pthread_mutex_lock(&s.lock)
            wait_briefly(&s.changed, &s.lock)
        if s.state.ending or (between and (s.state.holding or s.connection.stale > 0)):
            pthread_mutex_unlock(&s.lock)
            return 0 if s.state.ending else HELD
        s.connection.receiving = True
        pthread_mutex_unlock(&s.lock)
        while True:
            n = receive_some(s, target, size)
            interrupted = n < 0 and errno == EINTR
            if not interrupted or (between and s.state.holding):
                break
        pthread_mutex_lock(&s.lock)
        s.connection.receiving = False
        if n > 0:
            s.connection.received += n
            if s.connection.by_link:
                find_relayed_tail(s, <const uint8_t *>target, n)
        elif not interrupted and not s.state.ending:
            s.connection.attached = False
            if s.connection.tls != NULL:
                shutdown(s.connection.fd, SHUT_RDWR)   # with TLS it may be over and the socket not be
            leave_relayed_tail(s)
            interrupted = s.connection.stale > 0
        had = s.connection.received - s.connection.relayed_tail     # of the stream: MOVED is none of it
        pthread_cond_broadcast(&s.changed)
        pthread_mutex_unlock(&s.lock)
        if n > 0 and (had - s.connection.told >= GF_ACKNOWLEDGE_EVERY or is_farewell(<const uint8_t *>target, n)):
            acknowledge(s, had)
        if n > 0 or interrupted:
            return n if n > 0 else HELD


cdef bint resume_session(Session *s, int fd, gf_tls *tls, const uint8_t *proof, uint64_t theirs) noexcept nogil:
    """Goes on with another connection, whose guest has `theirs` bytes of ours; False: that cannot be. Takes `tls`."""
    cdef uint8_t frame[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>frame
    cdef gf_resumed *resumed = <gf_resumed *>(frame + sizeof(gf_header))
    cdef size_t size = sizeof(gf_header) + sizeof(gf_resumed)
    cdef bint fine
    cdef iovec part
    pthread_mutex_lock(&s.sending.lock)
    fine = (s.connection.resumable or s.connection.following) and not s.state.ending and not s.sending.unwritable \
        and may_go_on_at(s, theirs)
    if fine:
        detach(s)
    pthread_mutex_lock(&s.lock)
    if fine:
        while s.connection.receiving:      # the dispatcher, which the end of the old connection wakes
            pthread_cond_wait(&s.changed, &s.lock)
        leave_relayed_tail(s)
        memset(frame, 0, size)
        header.size = <uint32_t>size
        header.op = GF_OP_RESUMED
        memcpy(resumed.proof, proof, sizeof(resumed.proof))
        resumed.received = s.connection.received
        # A connection as fresh as this one takes it at once; if it does not, the guest comes again.
        part.iov_base = frame
        part.iov_len = size
        replace_tls(s, tls)
        tls = NULL
        if dup3(fd, s.connection.fd, O_CLOEXEC) >= 0 and send_some(s, &part, 1) == <ssize_t>size:
            s.connection.attached = True
            s.sending.frozen = s.sending.frozen and not s.connection.following
            s.connection.following = False
            s.connection.by_link = False
            s.connection.told = s.connection.received
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    if fine:
        if s.connection.resumable:
            rewind_log(s, theirs)
        if not s.connection.resumable or not flush_log(s):
            wake_sender(s)
    pthread_mutex_unlock(&s.sending.lock)
    gf_tls_end(tls)
    return fine


# The guest of a session that came from another machine still speaks over the link, by way of a relay, until it follows
# (WIRE.md 10).

cdef void find_relayed_tail(Session *s, const uint8_t *data, size_t size) noexcept nogil:
    """Of what came by way of a relay. Whoever resumes the session must not be told that it was received.
    s.lock is held."""
    cdef gf_header *header = &s.connection.relayed_head
    cdef bint moved = s.connection.relayed_tail == sizeof(gf_header)
    cdef size_t some
    while size > 0 and not moved:
        if s.connection.relayed_missing > 0:
            some = min(size, s.connection.relayed_missing)
            s.connection.relayed_missing -= some
        else:
            some = min(size, sizeof(gf_header) - s.connection.relayed_tail)
            memcpy(<uint8_t *>header + s.connection.relayed_tail, data, some)
            s.connection.relayed_tail += some
            moved = s.connection.relayed_tail == sizeof(gf_header) and header.op == GF_OP_MOVED
            if s.connection.relayed_tail == sizeof(gf_header) and not moved:
                s.connection.relayed_tail = 0
                s.connection.relayed_missing = max(<size_t>header.size, sizeof(gf_header)) - sizeof(gf_header)
        data += some
        size -= some


cdef void leave_relayed_tail(Session *s) noexcept nogil:
    """The connection that it came by is no more. The dispatcher takes it out of its buffer. s.lock is held."""
    s.connection.received -= s.connection.relayed_tail
    s.connection.stale += s.connection.relayed_tail
    s.connection.relayed_tail = 0


cdef void drop_stale(Session *s) noexcept nogil:
    """The dispatcher, between two frames. s.lock is held."""
    drop_last(s, s.connection.stale)
    s.connection.stale = 0


cdef void say_last(Session *s) noexcept nogil:
    """To a guest that does not count bytes, so that it knows that it has got everything. Nobody else writes."""
    cdef gf_header header
    cdef size_t sent = 0
    cdef ssize_t n = 0
    cdef pollfd poller
    memset(&header, 0, sizeof(header))
    header.size = sizeof(header)
    header.op = GF_OP_MOVED
    poller.fd = s.connection.fd
    poller.events = POLLOUT
    while (sent < sizeof(header) or not is_written(s)) and n >= 0 and not s.state.ending:
        if sent < sizeof(header):
            n = write_some(s, <uint8_t *>&header, sizeof(header), NULL, 0, sent)
            sent += max(n, <ssize_t>0)
        else:
            n = write_rest(s)
        if n == 0:
            poll(&poller, 1, 100)


cdef inline bint has_more_to_hear(Session *s) noexcept nogil:
    """The guest, on the connection that it leaves. s.sending.lock is held."""
    if s.connection.resumable:
        return (s.sending.log.written < s.sending.log.end or not is_written(s)) \
            and s.connection.attached and s.connection.by_link
    return not has_nothing_to_write(s)


cdef int guest_moved(Session *s, Frame *f) noexcept nogil:
    """It comes with another connection; what is to be said on this one is said to the end."""
    cdef bint here
    if unread_bytes(s) > 0:
        return malformed(s, f, b"more after the last frame of a connection")
    pthread_mutex_lock(&s.lock)
    here = s.connection.stale > 0          # quicker than the end of its old connection, if that had one
    s.connection.stale = 0
    if s.connection.resumable and not here:
        s.connection.received -= sizeof(gf_header)
        s.connection.relayed_tail = 0
    pthread_mutex_unlock(&s.lock)
    if here:
        return cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.sending.lock)
    while has_more_to_hear(s) and not s.state.ending:
        wait_briefly(&s.sending.drained, &s.sending.lock)
    pthread_mutex_lock(&s.lock)
    here = not s.connection.by_link
    if not here:
        s.connection.attached = False
        s.connection.following = True
        s.sending.frozen = True
    pthread_mutex_unlock(&s.lock)
    if not here and not s.connection.resumable:
        pthread_mutex_unlock(&s.sending.lock)
        say_last(s)
        pthread_mutex_lock(&s.sending.lock)
    if s.connection.following:
        shutdown(s.connection.fd, SHUT_WR)
    pthread_mutex_unlock(&s.sending.lock)
    eventfd_write(s.sending.output.bell, 1)
    return cu.CUDA_SUCCESS


cdef bint wait_for_guest(Session *s, bint between) noexcept nogil:
    """Until it has followed; False: it is not waited for any more, or something is to be done meanwhile."""
    cdef bint here
    pthread_mutex_lock(&s.lock)
    while s.connection.following and not s.state.ending and not (between and s.state.holding):
        wait_briefly(&s.changed, &s.lock)
    here = not s.connection.following and not s.state.ending
    pthread_mutex_unlock(&s.lock)
    return here


cdef void linger(Session *s) noexcept nogil:
    """Lets the guest read why it was refused: closing with unread bytes would take the text back from it."""
    cdef pollfd poller
    cdef uint8_t scratch[4096]
    cdef int rounds = 0
    shutdown(s.connection.fd, SHUT_WR)
    poller.fd = s.connection.fd
    poller.events = POLLIN
    while rounds < 1000 and poll(&poller, 1, 50) > 0 and recv(poller.fd, scratch, sizeof(scratch), MSG_DONTWAIT) > 0:
        rounds += 1


cdef void begin_connection(Session *s, int fd, gf_tls *tls, bint resumable) noexcept nogil:
    replace_tls(s, NULL)
    memset(&s.connection, 0, sizeof(Connection))
    s.connection.fd = fd
    s.connection.tls = tls
    s.connection.resumable = resumable
    s.connection.attached = True


cdef void restore_counts(Session *s, uint64_t received, uint64_t told) noexcept nogil:
    """Of a session that outlives its connection, and comes from another server."""
    s.connection.resumable = True
    s.connection.received = received
    s.connection.told = told


cdef void take_connection(Session *s, int guest, gf_tls *tls, bint relayed) noexcept nogil:
    """The guest speaks through this socket, whose number is given up, or (-1) through the one that there is."""
    if guest >= 0:
        dup3(guest, s.connection.fd, O_CLOEXEC)
        close(guest)
        replace_tls(s, tls)
    s.connection.by_link = relayed
