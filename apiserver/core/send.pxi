# Replies: written at once where the socket takes them, else by the sender thread. Nobody else waits for a slow guest.


cdef ssize_t write_some(Session *s, uint8_t *head, size_t head_size, uint8_t *payload, size_t payload_size,
                        size_t sent) noexcept nogil:
    cdef iovec parts[2]
    cdef msghdr message
    cdef int count = 0
    memset(&message, 0, sizeof(message))
    if sent < head_size:
        parts[count].iov_base = head + sent
        parts[count].iov_len = head_size - sent
        count += 1
        sent = head_size
    if payload_size > 0:
        parts[count].iov_base = payload + (sent - head_size)
        parts[count].iov_len = payload_size - (sent - head_size)
        count += 1
    message.msg_iov = parts
    message.msg_iovlen = count
    cdef ssize_t n
    while True:
        n = sendmsg(s.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
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
    pthread_mutex_lock(&s.lock)
    s.slots[piece.slot].references -= 1
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef void cannot_write(Session *s) noexcept nogil:
    """The guest is gone. s.send_lock is held."""
    cdef Outgoing *gone
    s.unwritable = True
    while s.queue != NULL:
        gone = s.queue
        s.queue = gone.next
        release_piece(s, gone.piece)
        free(gone)
    s.queue_tail = NULL
    s.queued = 0
    pthread_cond_broadcast(&s.drained)
    if not s.parting:
        end_session(s, b"connection lost")


cdef void *sender_main(void *argument) noexcept nogil:
    cdef Session *s = <Session *>argument
    cdef Outgoing *first
    cdef pollfd poller
    cdef ssize_t n
    poller.fd = s.fd
    poller.events = POLLOUT
    pthread_mutex_lock(&s.send_lock)
    if s.resumable:
        send_log(s)
        pthread_mutex_unlock(&s.send_lock)
        return NULL
    while True:
        while (s.queue == NULL or s.frozen) and not s.sender_stopping:
            pthread_cond_wait(&s.sendable, &s.send_lock)
        if s.queue == NULL or s.frozen:
            break
        first = s.queue
        n = write_some(s, first.head, first.head_size, first.piece.data, first.payload_size, first.sent)
        if n < 0:
            cannot_write(s)
            continue
        first.sent += n
        if first.sent == first.head_size + first.payload_size:
            s.queue = first.next
            if s.queue == NULL:
                s.queue_tail = NULL
            s.queued -= first.head_size + (first.payload_size if first.piece.slot < 0 else 0)
            release_piece(s, first.piece)
            free(first)
            pthread_cond_broadcast(&s.drained)
        elif n == 0:
            if s.sender_stopping:
                cannot_write(s)
                continue
            pthread_mutex_unlock(&s.send_lock)
            poll(&poller, 1, 100)
            pthread_mutex_lock(&s.send_lock)
    pthread_mutex_unlock(&s.send_lock)
    return NULL


cdef bint wake_sender(Session *s) noexcept nogil:
    """Most sessions never need one: their guests read what they ask for. s.send_lock is held."""
    if not s.sender_started:
        s.sender_started = pthread_create(&s.sender, NULL, sender_main, s) == 0
    pthread_cond_signal(&s.sendable)
    return s.sender_started


cdef void push(Session *s, uint8_t *head, size_t head_size, size_t payload_size, Piece piece) noexcept nogil:
    """Sends one frame, in order. s.send_lock is held."""
    cdef size_t sent = 0
    cdef size_t total = head_size + payload_size
    cdef ssize_t n
    if s.resumable:
        push_log(s, head, head_size, payload_size, piece)
        return
    if s.unwritable:
        release_piece(s, piece)
        return
    if s.queue == NULL and not s.frozen:
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
            return
    cdef Outgoing *rest = <Outgoing *>calloc(1, sizeof(Outgoing))
    if head_size > 0:
        memcpy(rest.head, head, head_size)
    rest.head_size = head_size
    rest.payload_size = payload_size
    rest.sent = sent
    rest.piece = piece
    if s.queue == NULL:
        s.queue = rest
    else:
        s.queue_tail.next = rest
    s.queue_tail = rest
    s.queued += head_size + (payload_size if piece.slot < 0 else 0)
    if not wake_sender(s):
        cannot_write(s)


cdef void answer(Session *s, Frame *f, int status, size_t payload_size, Piece piece) noexcept nogil:
    """Builds the reply and sends it. s.send_lock is held."""
    cdef uint8_t head[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>head
    cdef gf_reply_prefix *prefix = <gf_reply_prefix *>(head + sizeof(gf_header))
    cdef size_t size = sizeof(gf_header) + sizeof(gf_reply_prefix) + f.reply_size
    header.size = <uint32_t>(size + payload_size)
    header.op = f.op
    header.flags = GF_FLAG_REPLY
    header.request = f.request
    header.status = status
    pthread_mutex_lock(&s.lock)
    prefix.latched = s.latched
    prefix.latched_op = s.latched_op
    prefix.reserved = 0
    s.latched = cu.CUDA_SUCCESS
    s.latched_op = 0
    pthread_mutex_unlock(&s.lock)
    memcpy(head + sizeof(gf_header) + sizeof(gf_reply_prefix), f.reply, f.reply_size)
    count(&s.stats.answered[places[f.op]], f, status)
    push(s, head, size, payload_size, piece)


cdef void settle(Session *s, Task *task, int status) noexcept nogil:
    """Answers a copy out and takes it off the list. s.send_lock is held."""
    task.answered = True
    if task.earlier != NULL:
        task.earlier.later = task.later
    else:
        s.outstanding = task.later
    if task.later != NULL:
        task.later.earlier = task.earlier
    else:
        s.outstanding_tail = task.earlier
    if status == cu.CUDA_SUCCESS:
        answer(s, &task.frame, status, task.size, task.piece)
    else:
        note_status(s, status)
        release_piece(s, task.piece)
        answer(s, &task.frame, status, 0, NO_PIECE)


cdef void reply(Session *s, Frame *f, int status, size_t payload_size, Piece piece) noexcept nogil:
    """Answers a call, after the data of every earlier copy out that is complete: the reply may vouch for it."""
    cdef Task *task
    cdef Task *later
    cdef int done
    note_status(s, status)
    pthread_mutex_lock(&s.send_lock)
    task = s.outstanding
    while task != NULL and task.frame.sequence < f.sequence:
        later = task.later
        done = cu.cuEventQuery(task.event)
        if done != cu.CUDA_ERROR_NOT_READY:
            settle(s, task, done)
        task = later
    if s.stats.launches > 0:
        forward_output(s)
    answer(s, f, status, payload_size, piece)
    pthread_mutex_unlock(&s.send_lock)


cdef void refuse(Session *s, uint32_t reason) noexcept nogil:
    """Says why the session ends."""
    cdef uint8_t head[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>head
    cdef gf_refused *refused = <gf_refused *>(head + sizeof(gf_header))
    cdef Piece text
    cdef size_t length = strlen(s.reason)
    cdef size_t size = sizeof(gf_header) + sizeof(gf_refused)
    memset(head, 0, size)
    header.size = <uint32_t>(size + length)
    header.op = GF_OP_REFUSED
    refused.reason = reason
    refused.cuda_error = cu.CUDA_ERROR_UNKNOWN
    text.slot = -1
    text.data = <uint8_t *>malloc(length + 1)
    memcpy(text.data, s.reason, length)
    pthread_mutex_lock(&s.send_lock)
    push(s, head, size, length, text)
    pthread_mutex_unlock(&s.send_lock)


cdef void wait_for_room(Session *s) noexcept nogil:
    """Back-pressure on a guest that asks but does not read."""
    if s.queued <= QUEUE_LIMIT:     # a hint: after each frame a lock would cost more
        return
    pthread_mutex_lock(&s.send_lock)
    while s.queued > QUEUE_LIMIT and not s.ending and not s.holding:
        wait_briefly(&s.drained, &s.send_lock)
    pthread_mutex_unlock(&s.send_lock)
