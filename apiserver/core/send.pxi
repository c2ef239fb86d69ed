# Replies: written at once where the socket takes them, else by the sender thread. Nobody else waits for a slow guest.


cdef ssize_t write_some(Session *s, uint8_t *head, size_t head_size, uint8_t *payload, size_t payload_size,
                        size_t sent) noexcept nogil:
    cdef iovec parts[2]
    cdef int count = 0
    if sent < head_size:
        parts[count].iov_base = head + sent
        parts[count].iov_len = head_size - sent
        count += 1
        sent = head_size
    if payload_size > 0:
        parts[count].iov_base = payload + (sent - head_size)
        parts[count].iov_len = payload_size - (sent - head_size)
        count += 1
    cdef ssize_t n
    while True:
        n = send_some(s, parts, count)
        if n >= 0:
            s.stats.bytes_out += n
            return n
        if errno == EINTR:
            continue
        return 0 if errno == EAGAIN else -1


cdef void release_piece(Session *s, Piece piece) noexcept nogil:
    if piece.data == NULL:
        return
    if piece.slot < 0:
        free(piece.data)
        return
    let_go_of_slot(s, piece.slot)


cdef void cannot_write(Session *s) noexcept nogil:
    """The guest is gone. s.sending.lock is held."""
    cdef Outgoing *gone
    s.sending.unwritable = True
    while s.sending.queue != NULL:
        gone = s.sending.queue
        s.sending.queue = gone.next
        release_piece(s, gone.piece)
        free(gone)
    s.sending.queue_tail = NULL
    s.sending.queued = 0
    pthread_cond_broadcast(&s.sending.drained)
    if not s.sending.parting:
        end_session(s, LOST, b"connection lost")


cdef inline bint has_nothing_to_write(Session *s) noexcept nogil:
    """s.sending.lock is held."""
    return s.sending.queue == NULL and (is_written(s) or s.sending.unwritable)


cdef void *sender_main(void *argument) noexcept nogil:
    cdef Session *s = <Session *>argument
    cdef Outgoing *first
    cdef pollfd poller
    cdef ssize_t n
    poller.fd = s.connection.fd
    poller.events = POLLOUT
    pthread_mutex_lock(&s.sending.lock)
    if s.connection.resumable:
        send_log(s)
        pthread_mutex_unlock(&s.sending.lock)
        return NULL
    while True:
        while (has_nothing_to_write(s) or s.sending.frozen) and not s.sending.stopping:
            pthread_cond_wait(&s.sending.sendable, &s.sending.lock)
        if has_nothing_to_write(s) or s.sending.frozen:
            break
        first = s.sending.queue
        if first == NULL:
            n = write_rest(s)
        else:
            n = write_some(s, first.head, first.head_size, first.piece.data, first.payload_size, first.sent)
        if n < 0:
            cannot_write(s)
            continue
        if first != NULL:
            first.sent += n
        if first == NULL and n > 0:
            pthread_cond_broadcast(&s.sending.drained)
        elif first != NULL and first.sent == first.head_size + first.payload_size:
            s.sending.queue = first.next
            if s.sending.queue == NULL:
                s.sending.queue_tail = NULL
            s.sending.queued -= first.head_size + (first.payload_size if first.piece.slot < 0 else 0)
            release_piece(s, first.piece)
            free(first)
            pthread_cond_broadcast(&s.sending.drained)
        elif n == 0:
            if s.sending.stopping:
                cannot_write(s)
                continue
            pthread_mutex_unlock(&s.sending.lock)
            poll(&poller, 1, 100)
            pthread_mutex_lock(&s.sending.lock)
    pthread_mutex_unlock(&s.sending.lock)
    return NULL


cdef bint wake_sender(Session *s) noexcept nogil:
    """Most sessions never need one: their guests read what they ask for. s.sending.lock is held."""
    if not s.sending.started:
        s.sending.started = pthread_create(&s.sending.thread, NULL, sender_main, s) == 0
    pthread_cond_signal(&s.sending.sendable)
    return s.sending.started


cdef void push(Session *s, uint8_t *head, size_t head_size, size_t payload_size, Piece piece) noexcept nogil:
    """Sends one frame, in order. s.sending.lock is held."""
    cdef size_t sent = 0
    cdef size_t total = head_size + payload_size
    cdef ssize_t n
    if s.connection.resumable:
        push_log(s, head, head_size, payload_size, piece)
        return
    if s.sending.unwritable:
        release_piece(s, piece)
        return
    if s.sending.queue == NULL and not s.sending.frozen:
        while sent < total:
            n = write_some(s, head, head_size, piece.data, payload_size, sent)
            if n < 0:
                release_piece(s, piece)
                cannot_write(s)
                return
            if n == 0:
                break
            sent += n
        if sent == total:
            release_piece(s, piece)
            if not is_written(s) and not wake_sender(s):
                cannot_write(s)
            return
    cdef Outgoing *rest = <Outgoing *>calloc(1, sizeof(Outgoing))
    if rest == NULL:            # the guest would miss what comes first
        release_piece(s, piece)
        cannot_write(s)
        return
    if head_size > 0:
        memcpy(rest.head, head, head_size)
    rest.head_size = head_size
    rest.payload_size = payload_size
    rest.sent = sent
    rest.piece = piece
    if s.sending.queue == NULL:
        s.sending.queue = rest
    else:
        s.sending.queue_tail.next = rest
    s.sending.queue_tail = rest
    s.sending.queued += head_size + (payload_size if piece.slot < 0 else 0)
    if not wake_sender(s):
        cannot_write(s)


cdef void answer(Session *s, Frame *f, int status, size_t payload_size, Piece piece) noexcept nogil:
    """Builds the reply and sends it. s.sending.lock is held."""
    cdef uint8_t head[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>head
    cdef gf_reply_prefix *prefix = <gf_reply_prefix *>(head + sizeof(gf_header))
    cdef size_t size = sizeof(gf_header) + sizeof(gf_reply_prefix) + f.reply_size
    cdef int32_t latched
    cdef uint16_t latched_op
    header.size = <uint32_t>(size + payload_size)
    header.op = f.op
    header.flags = GF_FLAG_REPLY
    header.request = f.request
    header.status = status
    take_latched(s, &latched, &latched_op)
    prefix.latched = latched
    prefix.latched_op = latched_op
    prefix.reserved = 0
    memcpy(head + sizeof(gf_header) + sizeof(gf_reply_prefix), f.reply, f.reply_size)
    count(&s.stats.answered[places[f.op]], f, status)
    push(s, head, size, payload_size, piece)


cdef inline void vouch(Session *s, int status) noexcept nogil:
    """Sends what was printed: what is sent next may vouch for the kernel. s.sending.lock is held."""
    if s.stats.launches > 0 or status != cu.CUDA_SUCCESS:
        forward_output(s)


cdef void settle_older(Session *s, uint64_t sequence, int status) noexcept nogil:
    """Sends the data of every earlier copy out that is complete, and what was printed: what is sent next may vouch for
    it. s.sending.lock is held."""
    cdef Task *task = s.sending.outstanding
    cdef Task *later
    cdef int done
    while task != NULL and task.frame.sequence < sequence:
        later = task.later
        done = cu.cuEventQuery(task.event)
        if done != cu.CUDA_ERROR_NOT_READY:
            settle(s, task, done)
        task = later
    vouch(s, status)


cdef void reply(Session *s, Frame *f, int status, size_t payload_size, Piece piece) noexcept nogil:
    """Answers a call."""
    note_status(s, status)
    pthread_mutex_lock(&s.sending.lock)
    settle_older(s, f.sequence, status)
    answer(s, f, status, payload_size, piece)
    pthread_mutex_unlock(&s.sending.lock)


cdef void refuse(Session *s, uint32_t reason) noexcept nogil:
    """Says why the session ends."""
    cdef uint8_t head[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>head
    cdef gf_refused *refused = <gf_refused *>(head + sizeof(gf_header))
    cdef Piece text
    cdef size_t length = strlen(s.state.reason)
    cdef size_t size = sizeof(gf_header) + sizeof(gf_refused)
    memset(head, 0, size)
    header.size = <uint32_t>(size + length)
    header.op = GF_OP_REFUSED
    refused.reason = reason
    refused.cuda_error = cu.CUDA_ERROR_UNKNOWN
    text.slot = -1
    text.data = <uint8_t *>malloc(length + 1)
    if text.data == NULL:
        return
    memcpy(text.data, s.state.reason, length)
    pthread_mutex_lock(&s.sending.lock)
    push(s, head, size, length, text)
    pthread_mutex_unlock(&s.sending.lock)


cdef void wait_for_room(Session *s) noexcept nogil:
    """Back-pressure on a guest that asks but does not read."""
    if s.sending.queued <= QUEUE_LIMIT:     # a hint: after each frame a lock would cost more
        return
    pthread_mutex_lock(&s.sending.lock)
    while s.sending.queued > QUEUE_LIMIT and not s.state.ending and not s.state.holding:
        wait_briefly(&s.sending.drained, &s.sending.lock)
    pthread_mutex_unlock(&s.sending.lock)


cdef void stop_sender(Session *s) noexcept nogil:
    cdef bint started
    pthread_mutex_lock(&s.sending.lock)
    started = s.sending.started
    s.sending.stopping = True
    pthread_cond_signal(&s.sending.sendable)
    pthread_mutex_unlock(&s.sending.lock)
    if started:
        pthread_join(s.sending.thread, NULL)


cdef void freeze(Session *s, bint frozen) noexcept nogil:
    """From here on nothing is written, or again."""
    pthread_mutex_lock(&s.sending.lock)
    s.sending.frozen = frozen
    if not frozen and (s.sending.queued > 0 or not has_nothing_to_write(s)):
        wake_sender(s)
    pthread_mutex_unlock(&s.sending.lock)


cdef void drop_unsent(Session *s) noexcept nogil:
    """It was taken along, or cannot be sent any more: the next session's guest must not get it."""
    if s.connection.resumable:
        drop_log(s)
    pthread_mutex_lock(&s.sending.lock)
    cannot_write(s)
    pthread_mutex_unlock(&s.sending.lock)


cdef void write_unsent(Session *s, vector[uint8_t] *out) noexcept nogil:
    """What the guest has yet to get, which is not written any more: all that may have to be sent again, of a session
    that outlives its connection."""
    cdef Outgoing *next
    cdef size_t skip
    freeze(s, True)
    pthread_mutex_lock(&s.sending.lock)
    if s.connection.resumable:
        out.resize(s.sending.log.end - s.sending.log.begin)
        read_log(s, s.sending.log.begin, out.data(), out.size())
    else:
        next = s.sending.queue
        while next != NULL:
            skip = min(next.sent, next.head_size)
            append(out, next.head + skip, next.head_size - skip)
            skip = next.sent - skip
            append(out, next.piece.data + skip, next.payload_size - skip)
            next = next.next
    pthread_mutex_unlock(&s.sending.lock)


cdef size_t unsent_head(Session *s) noexcept nogil:
    """Bytes of what was not sent that end a frame whose beginning was."""
    cdef size_t head = 0
    pthread_mutex_lock(&s.sending.lock)
    if s.connection.resumable:
        find_boundary(s, s.sending.log.written)
        head = s.sending.log.boundary - s.sending.log.written
    elif s.sending.queue != NULL and (s.sending.queue.sent > 0 or s.sending.queue.torn):
        head = s.sending.queue.head_size + s.sending.queue.payload_size - s.sending.queue.sent
    pthread_mutex_unlock(&s.sending.lock)
    return head


cdef void pass_on(Session *s, const uint8_t *data, size_t size, bint torn) noexcept nogil:
    """Bytes that the guest has yet to get. s.sending.lock is held."""
    cdef Piece piece
    if size == 0:
        return
    piece.slot = -1
    piece.data = <uint8_t *>malloc(size)
    if piece.data == NULL:
        cannot_write(s)
        return
    memcpy(piece.data, data, size)
    push(s, NULL, 0, size, piece)
    if s.sending.queue != NULL and s.sending.queue_tail == s.sending.queue:
        s.sending.queue.torn = torn


cdef void begin_sending(Session *s) noexcept nogil:
    s.sending.queued = 0
    s.sending.started = False
    s.sending.stopping = False
    s.sending.unwritable = False
    s.sending.frozen = False
    begin_output(s)


cdef void expect(Session *s, Task *task) noexcept nogil:
    """A copy out is under way: no reply to a later call overtakes it."""
    pthread_mutex_lock(&s.sending.lock)
    task.earlier = s.sending.outstanding_tail
    if s.sending.outstanding_tail != NULL:
        s.sending.outstanding_tail.later = task
    else:
        s.sending.outstanding = task
    s.sending.outstanding_tail = task
    pthread_mutex_unlock(&s.sending.lock)


cdef void settle(Session *s, Task *task, int status) noexcept nogil:
    """Answers a copy out and takes it off the list. s.sending.lock is held."""
    task.answered = True
    if task.earlier != NULL:
        task.earlier.later = task.later
    else:
        s.sending.outstanding = task.later
    if task.later != NULL:
        task.later.earlier = task.earlier
    else:
        s.sending.outstanding_tail = task.earlier
    vouch(s, status)
    if status == cu.CUDA_SUCCESS:
        answer(s, &task.frame, status, task.size, task.piece)
    else:
        note_status(s, status)
        release_piece(s, task.piece)
        answer(s, &task.frame, status, 0, NO_PIECE)


cdef void renew_sender(Session *s) noexcept nogil:
    """There may be another one, for another connection."""
    stop_sender(s)
    s.sending.started = False
    s.sending.stopping = False


cdef void begin_parting(Session *s) noexcept nogil:
    """The guest's own socket is here: the end of this connection is nothing to us."""
    pthread_mutex_lock(&s.sending.lock)
    s.sending.parting = True
    pthread_mutex_unlock(&s.sending.lock)


cdef void end_parting(Session *s) noexcept nogil:
    """Waits until the queue is written. What comes next goes through another socket, if one is here."""
    pthread_mutex_lock(&s.sending.lock)
    while not has_nothing_to_write(s) and not s.state.ending:
        wait_briefly(&s.sending.drained, &s.sending.lock)
    if s.sending.parting:
        s.sending.parting = False
        s.sending.unwritable = False
    pthread_mutex_unlock(&s.sending.lock)
