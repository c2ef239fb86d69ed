# Streams and events; and fences, which order work across streams without a wait on the host.


cdef int join(Session *s, Stream *stream, Stream *target) noexcept nogil:
    """Later work of `target` comes after everything that `stream` was given so far."""
    enter(s, stream.base.context)
    cdef cu.CUevent event = take_event(s, stream.base.context)
    cdef int status = cu.cuEventRecord(event, stream.cu)
    if status == cu.CUDA_SUCCESS:
        status = cu.cuStreamWaitEvent(target.cu, event, 0)
    give_event(s, stream.base.context, event)
    return status


cdef int publish(Session *s) noexcept nogil:
    """From now on every stream waits, when it is next used, for what `order` was given so far."""
    enter(s, s.primary)
    cdef int status = cu.cuEventRecord(s.fence, s.order.cu)
    s.epoch += 1
    s.unpublished = False
    return status


cdef int fence(Session *s) noexcept nogil:
    cdef Stream *stream
    cdef Stream *only = NULL
    cdef int count = 0
    cdef bint others = s.unpublished
    cdef int status = cu.CUDA_SUCCESS
    stream = s.streams
    while stream != NULL:
        if stream.dirty:
            count += 1
            only = stream
            status = status or join(s, stream, s.order)
            stream.dirty = False
        stream = stream.next
    if count == 0 and not others:
        return status
    if count != 1 or others or only.epoch != s.epoch:
        only = NULL
    status = status or publish(s)
    if only != NULL:
        only.epoch = s.epoch    # its own work is all there was
    return status


cdef int note_copies(Session *s, Context *context) noexcept nogil:
    """Marks where copies end that a stream which does not wait for this legacy one may yet have to wait for."""
    cdef int status = cu.CUDA_SUCCESS
    if context.noted:
        return status
    status = enter(s, context)
    if context.copied == NULL:
        status = status or cu.cuEventCreate(&context.copied, cu.CU_EVENT_DISABLE_TIMING)
    status = status or cu.cuEventRecord(context.copied, context.legacy.cu)
    context.noted = status == cu.CUDA_SUCCESS
    return status


cdef int cover_copies(Session *s, Context *context) noexcept nogil:
    cdef int status
    if not context.uncovered:
        return cu.CUDA_SUCCESS
    status = note_copies(s, context)
    status = status or cu.cuStreamWaitEvent(s.order.cu, context.copied, 0)
    context.uncovered = False
    return status or publish(s)


cdef int cover_all_copies(Session *s) noexcept nogil:
    """Before there is a stream that does not wait for a legacy one: to the program they are done."""
    cdef Object *object = s.objects
    cdef int status = cover_copies(s, s.primary)
    while object != NULL:
        if object.kind == CONTEXT:
            status = status or cover_copies(s, <Context *>object)
        object = object.next
    return status


cdef Stream *link_stream(Session *s, cu.CUstream made, bint nonblocking) noexcept nogil:
    cdef Stream *stream = <Stream *>calloc(1, sizeof(Stream))
    stream.cu = made
    stream.nonblocking = nonblocking
    stream.lane = <Lane *>calloc(1, sizeof(Lane))
    stream.next = s.streams
    if s.streams != NULL:
        s.streams.previous = stream
    s.streams = stream
    return stream


cdef void unlink_stream(Session *s, Stream *stream) noexcept nogil:
    if stream.previous != NULL:
        stream.previous.next = stream.next
    else:
        s.streams = stream.next
    if stream.next != NULL:
        stream.next.previous = stream.previous
    pthread_mutex_lock(&s.lock)
    if stream.lane.busy:
        stream.lane.orphan = True
    else:
        free(stream.lane)
    pthread_mutex_unlock(&s.lock)
    if s.open_slot >= 0 and slot_knows(&s.slots[s.open_slot], stream):
        close_slot(s, s.open_slot)
    if stream.active:
        join(s, stream, s.reclaim)
    if stream.dirty:
        join(s, stream, s.order)
        s.unpublished = True


cdef inline int ready_stream(Session *s, Stream *stream) noexcept nogil:
    """Sees to the fences that a stream has not waited for. Its context is current."""
    cdef int status
    if stream.epoch == s.epoch:
        return cu.CUDA_SUCCESS
    status = cu.cuStreamWaitEvent(stream.cu, s.fence, 0)
    if status == cu.CUDA_SUCCESS:
        stream.epoch = s.epoch
    return status


cdef int find_stream(Session *s, Frame *f, uint64_t handle, Stream **found) noexcept nogil:
    """The stream that a call names, current context and fences seen to."""
    cdef int status
    cdef Stream *stream
    cdef cu.CUstream made
    if handle <= 2:
        if f.context == NULL:
            return cu.CUDA_ERROR_INVALID_CONTEXT
        if handle <= 1:
            stream = f.context.legacy
        else:
            # The guest's threads are not ours: theirs share one ordinary stream that the legacy stream waits for.
            if f.context.per_thread == NULL:
                status = cu.cuStreamCreate(&made, cu.CU_STREAM_DEFAULT)
                if status != cu.CUDA_SUCCESS:
                    return status
                f.context.per_thread = link_stream(s, made, False)
                f.context.per_thread.base.context = f.context
            stream = f.context.per_thread
    else:
        stream = <Stream *>find(s, handle, STREAM)
        if stream == NULL:
            return cu.CUDA_ERROR_INVALID_HANDLE
    found[0] = stream
    return ready_stream(s, stream)


cdef int use_stream(Session *s, Frame *f, uint64_t handle, Stream **found) noexcept nogil:
    """As find_stream, for a call that enqueues work."""
    cdef int status = find_stream(s, f, handle, found)
    if status == cu.CUDA_SUCCESS:
        found[0].dirty = True
        found[0].active = True
    return status


cdef int adopt_stream(Session *s, Frame *f, uint64_t handle, cu.CUstream made) noexcept nogil:
    cdef unsigned int flags = 0
    cdef int status = cu.cuStreamGetFlags(made, &flags)
    cdef Stream *stream
    if flags & cu.CU_STREAM_NON_BLOCKING:
        status = status or cover_all_copies(s)
    if status == cu.CUDA_SUCCESS:
        stream = link_stream(s, made, flags & cu.CU_STREAM_NON_BLOCKING)
        status = put(s, handle, STREAM, &stream.base, f.context)
        if status == cu.CUDA_SUCCESS:
            f.context.nonblocking += stream.nonblocking
            return status
        unlink_stream(s, stream)
        free(stream)
    cu.cuStreamDestroy(made)
    return status


cdef int drop_stream(Session *s, Stream *stream) noexcept nogil:
    stream.base.context.nonblocking -= stream.nonblocking
    forget(s, &stream.base)
    unlink_stream(s, stream)
    enter(s, stream.base.context)
    cdef int status = cu.cuStreamDestroy(stream.cu)
    free(stream)
    return status


cdef int retire_stream(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Stream *stream = <Stream *>find(s, handle, STREAM)
    return cu.CUDA_ERROR_INVALID_HANDLE if stream == NULL else drop_stream(s, stream)


cdef int adopt_event(Session *s, Frame *f, uint64_t handle, cu.CUevent made) noexcept nogil:
    cdef Event *event = <Event *>calloc(1, sizeof(Event))
    event.cu = made
    cdef int status = put(s, handle, EVENT, &event.base, f.context)
    if status != cu.CUDA_SUCCESS:
        cu.cuEventDestroy(made)
        free(event)
    return status


cdef int drop_event(Session *s, Event *event) noexcept nogil:
    cdef bint waited
    forget(s, &event.base)
    pthread_mutex_lock(&s.lock)
    waited = event.waiters > 0
    event.destroyed = True
    pthread_mutex_unlock(&s.lock)
    if waited:
        return cu.CUDA_SUCCESS
    cdef int status = cu.cuEventDestroy(event.cu)
    free(event)
    return status


cdef int retire_event(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Event *event = <Event *>find(s, handle, EVENT)
    return cu.CUDA_ERROR_INVALID_HANDLE if event == NULL else drop_event(s, event)


cdef int on_cuEventRecordWithFlags(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_cuEventRecordWithFlags *q = <gf_req_cuEventRecordWithFlags *>f.body
    cdef Event *event
    cdef Stream *stream
    if f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    cdef int status = find_event(s, f, q.hEvent, &event)
    status = status or use_stream(s, f, q.hStream, &stream)
    status = status or cu.cuEventRecordWithFlags(event.cu, stream.cu, q.flags)
    if status == cu.CUDA_SUCCESS:
        event.recorded = True
        event.flags = q.flags
        event.aged = False
    return status


cdef inline cu.CUevent mark_of(Event *event) noexcept nogil:
    """What stands here for the moment of which an event's age is told: the same for all of a context, so that they add up."""
    return event.base.context.anchor if event.aged else event.cu


cdef int on_cuEventElapsedTime_v2(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_cuEventElapsedTime_v2 *q = <gf_req_cuEventElapsedTime_v2 *>f.body
    cdef gf_rep_cuEventElapsedTime_v2 *out = <gf_rep_cuEventElapsedTime_v2 *>f.reply
    cdef Event *start
    cdef Event *end
    cdef float milliseconds = 0
    cdef double before = 0
    out.pMilliseconds = 0
    f.reply_size = sizeof(gf_rep_cuEventElapsedTime_v2)
    if f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    cdef int status = find_event(s, f, q.hStart, &start)
    status = status or find_event(s, f, q.hEnd, &end)
    status = status or cu.cuEventElapsedTime(&milliseconds, start.cu, end.cu)
    if status == cu.CUDA_SUCCESS and (start.aged or end.aged):     # the driver has said that both keep time
        status = cu.cuEventElapsedTime(&milliseconds, mark_of(start), mark_of(end))
    if status == cu.CUDA_SUCCESS:
        before = (start.age if start.aged else 0) - <double>(end.age if end.aged else 0)
        out.pMilliseconds = <float>(milliseconds + before / 1e6)
    return status


cdef inline int find_event(Session *s, Frame *f, uint64_t handle, Event **found) noexcept nogil:
    found[0] = <Event *>find(s, handle, EVENT)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS
