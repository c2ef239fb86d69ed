# Frames from the socket: parsed in place; bulk payloads go straight to where the device reads them.


cdef enum:
    AHEAD_STEP = 256 << 10      # bytes that are read of a session that waits long, every few seconds
    HELD = -1                   # by `receive`: nothing came, the dispatcher shall stand still


cdef ssize_t receive(Session *s, void *target, size_t size, bint between) noexcept nogil:
    """One recv; 0 at the end of the connection, whatever ended it; HELD only between two frames."""
    cdef ssize_t n
    if between and s.turn.gated:
        await_frame(s)
    if s.connection.following and not wait_for_guest(s, between):
        return 0 if s.state.ending else HELD
    if s.connection.resumable:
        n = receive_attached(s, target, size, between)
        if n > 0:
            s.stats.bytes_in += n
        return n
    while True:
        if between and s.state.holding:
            return HELD
        s.connection.receiving = True
        if s.arrival.restoring and s.connection.tls == NULL:
            n = receive_beside(s, target, size)
        else:
            n = receive_some(s, target, size)
        s.connection.receiving = False
        if n >= 0 or errno != EINTR:
            break
    if n > 0:
        s.stats.bytes_in += n
        return n
    if n < 0 and errno == EBADMSG:
        end_session(s, MALFORMED, b"malformed: what came over TLS is not what the guest sent")
    return 0


cdef int read_payload(Session *s, uint8_t *target, size_t size) noexcept nogil:
    """The next bytes of a frame whose struct was consumed; target NULL skips them."""
    cdef size_t part = min(size, s.input.end - s.input.begin)
    cdef ssize_t n
    cdef uint8_t scratch[4096]
    if target != NULL:
        memcpy(target, s.input.buffer + s.input.begin, part)
    s.input.begin += part
    while part < size:
        if target != NULL:
            n = receive(s, target + part, size - part, False)
        else:
            n = receive(s, scratch, min(size - part, sizeof(scratch)), False)
        if n == 0:
            end_session(s, LOST, b"connection lost")
            return ENDED
        part += n
    return cu.CUDA_SUCCESS


cdef int refuse_payload(Session *s, Frame *f, size_t fixed, int status) noexcept nogil:
    """What follows the request is skipped: nobody wants it."""
    return read_payload(s, NULL, f.size - fixed) or status


cdef void finish(Session *s, Frame *f, int status) noexcept nogil:
    if status == DEFERRED or status == ENDED:
        return
    if f.request != 0:
        reply(s, f, status, 0, NO_PIECE)
        return
    count(&s.stats.unanswered[places[f.op]], f, status)
    if status != cu.CUDA_SUCCESS:
        latch(s, f.op, status)


cdef int select_context(Session *s, Frame *f, uint32_t slot) noexcept nogil:
    """The context that is current on the guest's thread, made current here."""
    if slot == 0:
        return cu.CUDA_SUCCESS
    f.context = context_in(s, slot)
    return enter(s, f.context)


cdef inline bint is_timed(Session *s, uint16_t op) noexcept nogil:
    """A clock costs little beside an answer, but much beside a call that is only handed on."""
    if answers[op]:
        return True
    s.input.turn += 1
    if s.input.turn < TIMED_EVERY:
        return False
    s.input.turn = 0
    return True


cdef bint serve_stream(Session *s, Frame *f) noexcept nogil:
    """A frame that is no call, but about the connection."""
    cdef uint64_t received
    cdef size_t size = 0
    if f.op == GF_OP_ACKNOWLEDGE and s.connection.resumable:
        size = sizeof(received)
    elif f.op != GF_OP_MOVED or not (s.connection.by_link or s.connection.stale > 0):
        malformed(s, f, b"no such operation")
        return False
    if f.size != size:
        malformed(s, f, b"body size does not fit the operation")
        return False
    if s.input.end - s.input.begin < sizeof(gf_header) + size:
        return False
    memcpy(&received, s.input.buffer + s.input.begin + sizeof(gf_header), size)
    s.input.begin += sizeof(gf_header) + size
    return (acknowledged(s, f, received) if f.op == GF_OP_ACKNOWLEDGE else guest_moved(s, f)) == cu.CUDA_SUCCESS


cdef bint pass_over(Session *s, Frame *f) noexcept nogil:
    """A call that the guest lays out otherwise, as both knew: nobody looks into it."""
    s.input.begin += sizeof(gf_header)
    f.started = 0
    if read_payload(s, NULL, f.size) == ENDED:
        return False
    finish(s, f, cu.CUDA_ERROR_NOT_SUPPORTED)
    return True


cdef bint serve_frame(Session *s) noexcept nogil:
    """Does the next frame if enough of it is in the buffer."""
    cdef Frame f
    cdef gf_header *header = <gf_header *>(s.input.buffer + s.input.begin)
    cdef size_t have = s.input.end - s.input.begin
    cdef size_t size
    cdef uint32_t fixed
    cdef bint bulk
    cdef int status
    cdef uint32_t context
    if have < sizeof(gf_header):
        return False
    f.op = header.op
    f.request = header.request
    f.context = NULL
    f.reply_size = 0
    size = header.size
    context = header.context
    if size < sizeof(gf_header) or size > GF_FRAME_MAX:
        malformed(s, &f, b"frame size is out of range")
        return False
    if header.flags != 0:
        malformed(s, &f, b"flags in a request")
        return False
    f.size = size - sizeof(gf_header)
    fixed = s.input.sizes[f.op]
    if fixed == MISSING:
        return serve_stream(s, &f)
    if s.input.limited and not s.arrival.restoring and not s.input.spoken[f.op]:
        return pass_over(s, &f)
    if f.size < fixed or (f.size > fixed and not has_payload[f.op]):
        malformed(s, &f, b"body size does not fit the operation")
        return False
    if f.request == 0 and answers[f.op]:
        malformed(s, &f, b"a call that answers needs a request id")
        return False
    bulk = is_bulk[f.op]
    if not bulk and size > RECEIVE_BUFFER:
        malformed(s, &f, b"frame is larger than this operation may be")
        return False
    if bulk and f.size - fixed > GF_CHUNK:
        malformed(s, &f, b"payload is larger than a chunk")
        return False
    if have < (sizeof(gf_header) + fixed if bulk else size):
        return False
    if f.request != 0:
        s.stats.calls_sync += 1
    else:
        s.stats.calls_async += 1
    s.input.sequence += 1
    f.sequence = s.input.sequence
    f.body = s.input.buffer + s.input.begin + sizeof(gf_header)
    s.input.begin += sizeof(gf_header) + fixed if bulk else size
    f.started = now() if is_timed(s, f.op) else 0
    status = select_context(s, &f, context)
    if lasting[f.op] != LASTING_NONE and lasting[f.op] != LASTING_DESTROY and is_exhausted(s):
        status = status or cu.CUDA_ERROR_OUT_OF_MEMORY
    if status != cu.CUDA_SUCCESS:
        if bulk and refuse_payload(s, &f, fixed, status) == ENDED:
            return False
    else:
        if s.arrival.restoring and f.op != GF_OP_sessionLoadImage and f.op != GF_OP_sessionImageData:
            wait_for_tasks(s)       # it may refer to what is being loaded: the source waits for no answer
        status = handlers[f.op](s, &f)
        if status > cu.CUDA_SUCCESS and s.arrival.restoring and lapses[f.op] and f.context != NULL:
            status = lapse(s, &f, status)
    if status == cu.CUDA_SUCCESS and lasting[f.op] != LASTING_NONE:
        keep(s, &f, f.body, f.size, digest_of(status, f.reply, f.reply_size, NULL, 0) if answers[f.op] else 0)
    finish(s, &f, status)
    return status != ENDED


cdef void pass_rest(Session *s) noexcept nogil:
    """The guest is gone. What it still asked for is not done; its last frame says whether it closed the session."""
    cdef gf_header *header = <gf_header *>s.input.buffer
    cdef size_t last
    cdef ssize_t n = 1
    while n > 0 or (n < 0 and errno == EINTR and not s.state.ending):
        last = min(s.input.end - s.input.begin, sizeof(gf_header))
        memmove(s.input.buffer, s.input.buffer + s.input.end - last, last)
        s.input.begin = 0
        s.input.end = last
        n = receive_some(s, s.input.buffer + last, RECEIVE_BUFFER - last)
        s.input.end += max(n, <ssize_t>0)
    if last == sizeof(gf_header) and header.op == GF_OP_sessionClose and header.size == sizeof(gf_header):
        s.input.closed = True
        end_session(s, CLOSED, b"closed")
    else:
        end_session(s, LOST, b"connection lost")


cdef bint needs_memory(Session *s) noexcept nogil:
    """What came next is a call: not about the connection, nor the end of the session."""
    cdef gf_header *header = <gf_header *>(s.input.buffer + s.input.begin)
    return s.input.end - s.input.begin >= sizeof(gf_header) and header.op != GF_OP_sessionClose \
        and s.input.sizes[header.op] != MISSING


cdef bint may_serve(Session *s) noexcept nogil:
    """Whether what came next may be done now. A call waits for a turn first: the memory comes back for it."""
    if s.residency.absent and not needs_memory(s):
        return True
    return may_work(s) and await_memory(s)


cdef uint64_t note_wait(Session *s, uint64_t since) noexcept nogil:
    """The dispatcher has been busy since then, and waits for its guest from now on."""
    cdef uint64_t time = now()
    s.stats.busy_nanoseconds += time - since
    note_quiet(s, time)
    return time


cdef void serve_frames(Session *s) noexcept nogil:
    """The dispatcher: until the guest closes, vanishes, breaks the protocol, or the session is revoked."""
    cdef ssize_t n
    cdef uint64_t since = now()
    while not s.state.ending:
        while not s.state.ending and not s.state.holding and may_serve(s) and serve_frame(s):
            if s.input.closed:
                end_session(s, CLOSED, b"closed")
            wait_for_room(s)
            wait_for_waiters(s)
        if s.state.ending:
            break
        if s.connection.stale > 0:
            pthread_mutex_lock(&s.lock)
            drop_stale(s)
            pthread_mutex_unlock(&s.lock)
        if s.state.holding:
            s.stats.busy_nanoseconds += now() - since
            stand_still(s)
            since = now()
            continue
        if s.input.begin > 0:
            memmove(s.input.buffer, s.input.buffer + s.input.begin, s.input.end - s.input.begin)
            s.input.end -= s.input.begin
            s.input.begin = 0
        since = note_wait(s, since)
        n = receive(s, s.input.buffer + s.input.end, s.input.room - s.input.end, True)
        note_quiet(s, 0)
        since = now()
        if n == 0:
            end_session(s, LOST, b"connection lost")
        elif n > 0:
            s.input.end += n
    s.stats.busy_nanoseconds += now() - since


cdef bint widen_input(Session *s, size_t size) noexcept nogil:
    """For so many bytes in all, unless that is too many."""
    cdef uint8_t *larger
    if size <= s.input.room:
        return True
    larger = <uint8_t *>realloc(s.input.buffer, size) if size <= INPUT_MOST else NULL
    if larger == NULL:
        return False
    s.input.buffer = larger
    s.input.room = size
    return True


cdef void read_ahead(Session *s) noexcept nogil:
    """A guest that has more to send than its socket takes shall not believe that nobody is here: TCP does, after 20 s
    (TCP_USER_TIMEOUT). So a session that does nothing for long takes a little."""
    cdef pollfd poller
    cdef ssize_t n
    poller.fd = s.connection.fd
    poller.events = POLLIN
    if s.connection.following or not s.connection.attached or poll(&poller, 1, 0) <= 0:
        return
    if s.input.room - s.input.end < AHEAD_STEP and not widen_input(s, s.input.room + AHEAD_STEP):
        return
    n = receive(s, s.input.buffer + s.input.end, s.input.room - s.input.end, True)
    if n == 0:
        end_session(s, LOST, b"connection lost")
    elif n > 0:
        s.input.end += n


cdef void begin_input(Session *s) noexcept nogil:
    if s.input.room > RECEIVE_BUFFER:       # the session before had to wait
        s.input.buffer = <uint8_t *>realloc(s.input.buffer, RECEIVE_BUFFER)
        s.input.room = RECEIVE_BUFFER
    s.input.begin = 0
    s.input.end = 0
    s.input.sequence = 0
    s.input.closed = False
    s.input.sizes = served_sizes
    s.input.limited = False


cdef void reserve_input(Session *s) noexcept nogil:
    s.input.buffer = <uint8_t *>malloc(RECEIVE_BUFFER)
    s.input.room = RECEIVE_BUFFER


cdef void put_before(Session *s, vector[uint8_t] *early) noexcept nogil:
    """Bytes that came, elsewhere, before those that were not looked at yet. There is room for them."""
    cdef size_t size = s.input.end - s.input.begin
    memmove(s.input.buffer + early.size(), s.input.buffer + s.input.begin, size)
    if not early.empty():
        memcpy(s.input.buffer, early.data(), early.size())
    s.input.begin = 0
    s.input.end = early.size() + size


cdef void limit_to(Session *s, const uint16_t *spoken, size_t count) noexcept nogil:
    """The guest and this build agreed on these operations alone."""
    cdef size_t i
    s.input.limited = True
    memset(s.input.spoken, 0, sizeof(s.input.spoken))
    for i in range(count):
        s.input.spoken[spoken[i]] = True


cdef void serve_only(Session *s, const uint16_t *sizes) noexcept nogil:
    """Operations that have a size there."""
    s.input.sizes = sizes


cdef size_t unread_bytes(Session *s) noexcept nogil:
    return s.input.end - s.input.begin


cdef void drop_last(Session *s, size_t size) noexcept nogil:
    """The last bytes that came are no part of the stream."""
    s.input.end -= size
