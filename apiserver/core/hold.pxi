# A session stands still between two frames, so that it can be taken elsewhere: the dispatcher, the device, what goes to the
# guest. What is called here is called by another thread than the dispatcher (`move_lock`, DESIGN.md).

cdef enum:
    SIGNAL_EVERY = 1000         # microseconds: between two attempts to wake a dispatcher from recv


cdef void wake_up(int number) noexcept nogil:
    """Not to be acted on: recv ends, that is all."""


cdef int prepare_wake() noexcept nogil:
    """Without SA_RESTART, so that recv does end."""
    cdef signal_action action
    memset(&action, 0, sizeof(action))
    action.sa_handler = wake_up
    return sigaction(SIGURG, &action, NULL)


cdef void end_service(Session *s) noexcept nogil:
    """Whoever moves the session is done, and finds nothing any more."""
    pthread_mutex_lock(&s.lock)
    s.serving = False
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    pthread_mutex_lock(&s.move_lock)
    end_tail(s)
    end_restore(s)
    end_move(s)
    pthread_mutex_unlock(&s.move_lock)


cdef void stand_still(Session *s) noexcept nogil:
    """The dispatcher, while somebody wants it."""
    pthread_mutex_lock(&s.lock)
    drop_stale(s)
    s.held = True
    pthread_cond_broadcast(&s.changed)
    while s.holding and not s.ending:
        wait_briefly(&s.changed, &s.lock)
    s.held = False
    pthread_mutex_unlock(&s.lock)


cdef void until_after(timespec *until, long microseconds) noexcept nogil:
    clock_gettime(CLOCK_REALTIME, until)
    until.tv_nsec += microseconds * 1000
    if until.tv_nsec >= 1000000000:
        until.tv_nsec -= 1000000000
        until.tv_sec += 1


cdef bint hold_session(Session *s, uint64_t patience) noexcept nogil:
    """Makes the dispatcher stand still between two frames; False: it did not come to that in so many nanoseconds."""
    cdef uint64_t deadline = now() + patience
    cdef timespec until
    cdef bint held
    pthread_mutex_lock(&s.lock)
    s.holding = True
    while not s.held and not s.ending and s.serving and now() < deadline:
        # It may be about to enter recv, or have left it: that is why it is told again and again.
        if s.receiving:
            pthread_kill(s.dispatcher, SIGURG)
        pthread_cond_broadcast(&s.drained)
        until_after(&until, SIGNAL_EVERY)
        pthread_cond_timedwait(&s.changed, &s.lock, &until)
    held = s.held and not s.ending
    if not held:
        s.holding = False
        pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    return held


cdef void freeze(Session *s, bint frozen) noexcept nogil:
    """From here on nothing is written, or again."""
    pthread_mutex_lock(&s.send_lock)
    s.frozen = frozen
    if not frozen and s.queued > 0:
        wake_sender(s)
    pthread_mutex_unlock(&s.send_lock)


cdef void release_session(Session *s) noexcept nogil:
    """The dispatcher goes on."""
    freeze(s, s.following)
    pthread_mutex_lock(&s.lock)
    s.holding = False
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef void leave_session(Session *s) noexcept nogil:
    """The guest's connection is no longer ours: not a byte more, and no end of it."""
    freeze(s, True)
    pthread_mutex_lock(&s.lock)
    s.left = True
    pthread_mutex_unlock(&s.lock)
    end_session(s, b"moved")


cdef void drop_unsent(Session *s) noexcept nogil:
    """It was taken along, or cannot be sent any more: the next session's guest must not get it."""
    if s.resumable:
        drop_log(s)
    pthread_mutex_lock(&s.send_lock)
    cannot_write(s)
    pthread_mutex_unlock(&s.send_lock)


cdef int stream_state(Session *s) noexcept nogil:
    """Of all streams: success, not ready, or what went wrong. The dispatcher stands still."""
    cdef Stream *stream = s.streams
    cdef int status = cu.CUDA_SUCCESS
    while stream != NULL and status == cu.CUDA_SUCCESS:
        status = cu.cuCtxSetCurrent(stream.base.context.cu)
        status = status or cu.cuStreamQuery(stream.cu)
        stream = stream.next
    status = status or cu.cuCtxSetCurrent(s.primary.cu)
    status = status or cu.cuStreamQuery(s.order.cu)
    return status or cu.cuStreamQuery(s.reclaim.cu)


cdef int drain_session(Session *s, uint64_t patience) noexcept nogil:
    """Waits until the device has nothing to do and every reply is written or queued; not ready: it took too long."""
    cdef uint64_t deadline = now() + patience
    cdef unsigned int pause = 20
    cdef int status
    cdef int tasks
    while True:
        status = stream_state(s)
        pthread_mutex_lock(&s.lock)
        tasks = s.tasks
        pthread_mutex_unlock(&s.lock)
        if status == cu.CUDA_SUCCESS and tasks > 0:
            status = cu.CUDA_ERROR_NOT_READY
        if status != cu.CUDA_ERROR_NOT_READY or now() >= deadline or s.ending:
            break
        usleep(pause)
        pause = min(2 * pause, 1000)
    if status == cu.CUDA_SUCCESS:
        pthread_mutex_lock(&s.send_lock)
        forward_output(s)
        pthread_mutex_unlock(&s.send_lock)
    return status


cdef void write_unsent(Session *s, vector[uint8_t] *out) noexcept nogil:
    """What the guest has yet to get, which is not written any more: all that may have to be sent again, of a session that
    outlives its connection."""
    cdef Outgoing *next
    cdef size_t skip
    freeze(s, True)
    pthread_mutex_lock(&s.send_lock)
    if s.resumable:
        out.resize(s.log_end - s.log_begin)
        read_log(s, s.log_begin, out.data(), out.size())
    else:
        next = s.queue
        while next != NULL:
            skip = min(next.sent, next.head_size)
            append(out, next.head + skip, next.head_size - skip)
            skip = next.sent - skip
            append(out, next.piece.data + skip, next.payload_size - skip)
            next = next.next
    pthread_mutex_unlock(&s.send_lock)


cdef size_t unsent_head(Session *s) noexcept nogil:
    """Bytes of what was not sent that end a frame whose beginning was."""
    cdef size_t head = 0
    pthread_mutex_lock(&s.send_lock)
    if s.resumable:
        find_boundary(s, s.log_written)
        head = s.log_boundary - s.log_written
    elif s.queue != NULL and (s.queue.sent > 0 or s.queue.torn):
        head = s.queue.head_size + s.queue.payload_size - s.queue.sent
    pthread_mutex_unlock(&s.send_lock)
    return head


cdef int ages_in(Session *s, Context *context, vector[uint64_t] *out) noexcept nogil:
    """All events of a context are measured against one."""
    cdef Object *object = s.objects
    cdef Event *event
    cdef cu.CUevent present
    cdef float milliseconds
    cdef int64_t age
    cdef int status = cu.cuCtxSetCurrent(context.cu)
    status = status or cu.cuEventCreate(&present, cu.CU_EVENT_DEFAULT)
    if status != cu.CUDA_SUCCESS:
        return status
    status = cu.cuEventRecord(present, <cu.CUstream>cu.CU_STREAM_LEGACY)
    status = status or cu.cuEventSynchronize(present)
    while object != NULL and status == cu.CUDA_SUCCESS:
        event = <Event *>object
        if object.kind == EVENT and object.context == context and event.recorded:
            age = event.age if event.aged else 0
            status = cu.cuEventElapsedTime(&milliseconds, event.cu, present)
            if event.aged:
                status = status or cu.cuEventElapsedTime(&milliseconds, mark_of(event), present)
            if status == cu.CUDA_SUCCESS:
                age += <int64_t>(milliseconds * 1e6)
            elif status == cu.CUDA_ERROR_INVALID_HANDLE:
                age = 0
                status = cu.CUDA_SUCCESS
            out.push_back(object.handle)
            out.push_back(event.flags)
            out.push_back(<uint64_t>age)
        object = object.next
    cu.cuEventDestroy(present)
    return status


cdef int event_ages(Session *s, vector[uint64_t] *out) noexcept nogil:
    """Of every recorded event: handle, flags, nanoseconds since it happened (0 of one that keeps no time)."""
    cdef Object *object = s.objects
    cdef int status = ages_in(s, s.primary, out)
    while object != NULL and status == cu.CUDA_SUCCESS:
        if object.kind == CONTEXT:
            status = ages_in(s, <Context *>object, out)
        object = object.next
    return status


cdef int prepare_side_stream(Session *s) noexcept nogil:
    """A stream of the primary context that waits for no other, nor another for it."""
    if s.side_stream != NULL:
        return cu.CUDA_SUCCESS
    return cu.cuStreamCreate(&s.side_stream, cu.CU_STREAM_NON_BLOCKING)


cdef void end_move(Session *s) noexcept nogil:
    """Takes from the primary context, which is current, what moving a session put there."""
    cdef size_t i
    drop_hasher(s)
    if s.side_stream != NULL:
        cu.cuStreamDestroy(s.side_stream)
        s.side_stream = NULL
    for i in range(s.pinned.size()):
        cu.cuMemHostUnregister(<void *>s.pinned[0][i])
    s.pinned.clear()


cdef int read_aside(Session *s, uint64_t address, void *target, size_t size) noexcept nogil:
    cdef int status = cu.cuCtxSetCurrent(s.primary.cu)
    status = status or prepare_side_stream(s)
    status = status or cu.cuMemcpyDtoHAsync(target, address, size, s.side_stream)
    return status or cu.cuStreamSynchronize(s.side_stream)


cdef int find_variable(Session *s, uint64_t owner, uint32_t context, const char *name,
                       cu.CUdeviceptr *address, size_t *size) noexcept nogil:
    """Of a module or library, as it is in a context. The dispatcher stands still."""
    cdef Image *image = <Image *>find_any(s, owner, MODULE, LIBRARY)
    cdef Object *there = NULL
    cdef int status
    if 0 < context <= GF_HANDLE_SLOT_LIMIT:
        there = s.tables[CONTEXT][context - 1].object
    if image == NULL or there == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    status = cu.cuCtxSetCurrent((<Context *>there).cu)
    if image.module != NULL:
        return status or cu.cuModuleGetGlobal(address, size, image.module, name)
    return status or cu.cuLibraryGetGlobal(address, size, image.library, name)


cdef int drop_aside_idle(Session *s) noexcept nogil:
    """At once if the device has nothing to do; else when somebody needs the memory, or the session is over."""
    if stream_state(s) == cu.CUDA_SUCCESS:
        return drop_aside(s)
    s.aside_unwanted = True
    return cu.CUDA_SUCCESS


cdef void drop_unwanted(Session *s) noexcept nogil:
    """The dispatcher, which may wait for the device here. Whoever moves the session wants it after all, or comes to it himself."""
    if s.aside_unwanted and pthread_mutex_trylock(&s.move_lock) == 0:
        if s.aside_unwanted:
            drop_aside(s)
        pthread_mutex_unlock(&s.move_lock)


cdef void note_touched(Session *s, const uint8_t *params, size_t size) noexcept nogil:
    """Launch parameters that look like addresses say what is being written, maybe."""
    cdef uint64_t word, page
    cdef size_t at = 0
    while at + sizeof(word) <= size:
        memcpy(&word, params + at, sizeof(word))
        if word >= s.window and word - s.window < s.window_size:
            page = (word - s.window) >> PAGE_BITS
            s.touched[page >> 6] |= <uint64_t>1 << (page & 63)
        at += sizeof(word)
