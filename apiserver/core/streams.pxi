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


cdef int publish_on(Session *s, Gpu *gpu) noexcept nogil:
    """From now on every stream of the device waits, when it is next used, for what `order` was given so far."""
    enter(s, gpu.primary)
    cdef int status = cu.cuEventRecord(gpu.fence, gpu.order.cu)
    gpu.epoch += 1
    gpu.unpublished = False
    return status


cdef int publish(Session *s, Gpu *gpu) noexcept nogil:
    """The same of every stream there is. A device that has failed has nothing that could wait."""
    cdef int status = publish_on(s, gpu)
    cdef int i
    for i in range(s.device.count if s.device.count > 1 else 0):
        if gpu_at_place(s, i) != gpu:
            enter(s, gpu_at_place(s, i).primary)
            cu.cuStreamWaitEvent(gpu_at_place(s, i).order.cu, gpu.fence, 0)
            publish_on(s, gpu_at_place(s, i))
    return status


cdef int fence_devices(Session *s, Gpu *asking) noexcept nogil:
    """All work on each device before all that comes on each. The device that asks tells how it fared: another one may
    have failed, and has nothing that could wait."""
    cdef Stream *stream = s.streams.first
    cdef bint any = False
    cdef int i, j
    cdef int status = cu.CUDA_SUCCESS
    cdef int one
    for i in range(s.device.count):
        any = any or gpu_at_place(s, i).unpublished
    while stream != NULL:
        if stream.dirty:
            any = True
            one = join(s, stream, stream.base.context.gpu.order)
            if stream.base.context.gpu == asking:
                status = status or one
            stream.dirty = False
        stream = stream.next
    if not any:
        return status
    for i in range(s.device.count):
        enter(s, gpu_at_place(s, i).primary)
        cu.cuEventRecord(gpu_at_place(s, i).fence, gpu_at_place(s, i).order.cu)
    for i in range(s.device.count):
        enter(s, gpu_at_place(s, i).primary)
        for j in range(s.device.count):
            if i != j:
                cu.cuStreamWaitEvent(gpu_at_place(s, i).order.cu, gpu_at_place(s, j).fence, 0)
    for i in range(s.device.count):
        one = publish_on(s, gpu_at_place(s, i))
        if gpu_at_place(s, i) == asking:
            status = status or one
    return status


cdef int fence(Session *s, Gpu *gpu) noexcept nogil:
    cdef Stream *stream
    cdef Stream *only = NULL
    cdef int count = 0
    cdef bint others = gpu.unpublished
    cdef int status = cu.CUDA_SUCCESS
    if s.device.count > 1:
        return fence_devices(s, gpu)
    stream = s.streams.first
    while stream != NULL:
        if stream.dirty:
            count += 1
            only = stream
            status = status or join(s, stream, gpu.order)
            stream.dirty = False
        stream = stream.next
    if count == 0 and not others:
        return status
    if count != 1 or others or only.epoch != gpu.epoch:
        only = NULL
    status = status or publish_on(s, gpu)
    if only != NULL:
        only.epoch = gpu.epoch    # its own work is all there was
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
    """Before there is a stream that does not wait for a legacy one: to the program they are done. Only of a primary
    context without others, on the only device, are copies ever uncovered (copied_in)."""
    cdef int status
    if not context.uncovered:
        return cu.CUDA_SUCCESS
    status = note_copies(s, context)
    status = status or cu.cuStreamWaitEvent(context.gpu.order.cu, context.copied, 0)
    context.uncovered = False
    return status or publish(s, context.gpu)


cdef Stream *link_stream(Session *s, cu.CUstream made, bint nonblocking) noexcept nogil:
    cdef Stream *stream = <Stream *>calloc(1, sizeof(Stream))
    stream.cu = made
    stream.nonblocking = nonblocking
    stream.lane = <Lane *>calloc(1, sizeof(Lane))
    stream.next = s.streams.first
    if s.streams.first != NULL:
        s.streams.first.previous = stream
    s.streams.first = stream
    return stream


cdef int note_outlived(Session *s, Gpu *gpu) noexcept nogil:
    """What `reclaim` was just told to wait for is in no stream of the session: only this event says when it is done."""
    return enter(s, gpu.primary) or cu.cuEventRecord(gpu.outlived, gpu.reclaim.cu)


cdef void outlive(Session *s, Stream *stream) noexcept nogil:
    """The driver's stream goes, perhaps before its work is done. One that was never used may have no context yet."""
    leave_slot(s, stream)
    if stream.active:
        join(s, stream, stream.base.context.gpu.reclaim)
        note_outlived(s, stream.base.context.gpu)
    if stream.dirty:
        join(s, stream, stream.base.context.gpu.order)
        stream.base.context.gpu.unpublished = True


cdef bint is_held_up(Session *s) noexcept nogil:
    """Whether there is work under way that `reclaim` may be waiting for; if not, it is about to come to its end."""
    cdef Stream *stream = s.streams.first
    cdef int i
    while stream != NULL:
        if stream.active and state_of(stream) == cu.CUDA_ERROR_NOT_READY:
            return True
        stream = stream.next
    for i in range(s.device.count):
        if cu.cuEventQuery(gpu_at_place(s, i).outlived) == cu.CUDA_ERROR_NOT_READY:
            return True
    return False


cdef void unlink_stream(Session *s, Stream *stream) noexcept nogil:
    if stream.previous != NULL:
        stream.previous.next = stream.next
    else:
        s.streams.first = stream.next
    if stream.next != NULL:
        stream.next.previous = stream.previous
    pthread_mutex_lock(&s.lock)
    if stream.lane.busy:
        stream.lane.orphan = True
    else:
        free(stream.lane)
    pthread_mutex_unlock(&s.lock)
    outlive(s, stream)


cdef inline int ready_stream(Session *s, Stream *stream) noexcept nogil:
    """Sees to the fences that a stream has not waited for. Its context is current."""
    cdef int status
    cdef Gpu *gpu = stream.base.context.gpu
    if stream.epoch == gpu.epoch:
        return cu.CUDA_SUCCESS
    status = cu.cuStreamWaitEvent(stream.cu, gpu.fence, 0)
    if status == cu.CUDA_SUCCESS:
        stream.epoch = gpu.epoch
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
        status = status or cover_copies(s, s.device.primary)
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


cdef void renew_stream(Session *s, Stream *stream, cu.CUstream made) noexcept nogil:
    """Another stream of the driver takes its place; what it was given goes on."""
    outlive(s, stream)
    cu.cuStreamDestroy(stream.cu)
    stream.cu = made
    stream.dirty = False
    stream.active = False
    stream.epoch = 0


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
    if event.arena != NULL:
        end_event_export(s, event)
        take_cell_back(s, event)
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


cdef int cuEventRecordWithFlags_call(Session *s, Frame *f, gf_req_cuEventRecordWithFlags *q, Event *event,
                                     Stream *stream) noexcept nogil:
    if event.arena != NULL:
        return record_in(s, f.context, event, stream.cu)
    cdef int status = cu.cuEventRecordWithFlags(event.cu, stream.cu, q.flags)
    if status == cu.CUDA_SUCCESS:
        event.recorded = True
        event.flags = q.flags
        event.aged = False
    return status


cdef inline cu.CUevent mark_of(Event *event) noexcept nogil:
    """What stands here for the moment of which an event's age is told: the same for all of a context, so that they add
    up."""
    return event.base.context.anchor if event.aged else event.cu


cdef int cuEventElapsedTime_v2_call(Session *s, Frame *f, gf_req_cuEventElapsedTime_v2 *q, Event *start, Event *end,
                                    float *elapsed) noexcept nogil:
    cdef float milliseconds = 0
    cdef double before = 0
    cdef int status = cu.cuEventElapsedTime(&milliseconds, start.cu, end.cu)
    if status == cu.CUDA_SUCCESS and (start.aged or end.aged):     # the driver has said that both keep time
        status = cu.cuEventElapsedTime(&milliseconds, mark_of(start), mark_of(end))
    if status == cu.CUDA_SUCCESS:
        before = (start.age if start.aged else 0) - <double>(end.age if end.aged else 0)
        elapsed[0] = <float>(milliseconds + before / 1e6)
    return status


cdef inline int find_event(Session *s, Frame *f, uint64_t handle, Event **found) noexcept nogil:
    found[0] = <Event *>find(s, handle, EVENT)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef inline int find_plain_event(Session *s, Frame *f, uint64_t handle, Event **found) noexcept nogil:
    """One that is this process's alone."""
    cdef int status = find_event(s, f, handle, found)
    return cu.CUDA_ERROR_NOT_SUPPORTED if status == cu.CUDA_SUCCESS and found[0].arena != NULL else status


cdef int ages_in(Session *s, Context *context, vector[uint64_t] *out) noexcept nogil:
    """All events of a context are measured against one."""
    cdef Object *object = youngest(s, &context.base)
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
        if object.kind == EVENT and event.recorded:
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
        object = next_elder(s, object)
    cu.cuEventDestroy(present)
    return status


cdef int event_ages(Session *s, vector[uint64_t] *out) noexcept nogil:
    """Of every recorded event: handle, flags, nanoseconds since it happened (0 of one that keeps no time)."""
    cdef Context *context = s.device.others
    cdef int place
    cdef int status = cu.CUDA_SUCCESS
    for place in range(s.device.count):
        status = status or ages_in(s, gpu_at_place(s, place).primary, out)
    while context != NULL and status == cu.CUDA_SUCCESS:
        status = ages_in(s, context, out)
        context = next_context(s, context)
    return status


cdef void reserve_order(Gpu *gpu) noexcept nogil:
    gpu.order = <Stream *>calloc(1, sizeof(Stream))
    gpu.reclaim = <Stream *>calloc(1, sizeof(Stream))


cdef int furnish_streams(Session *s, Gpu *gpu) noexcept nogil:
    """Our own streams and the fence of a device, in its primary context."""
    cdef cu.CUstream made
    cdef int status = enter(s, gpu.primary) or cu.cuStreamCreate(&made, cu.CU_STREAM_NON_BLOCKING)
    if status != cu.CUDA_SUCCESS:
        return status
    gpu.order.cu = made
    gpu.order.base.context = gpu.primary
    status = cu.cuStreamCreate(&made, cu.CU_STREAM_NON_BLOCKING)
    if status != cu.CUDA_SUCCESS:
        return status
    gpu.reclaim.cu = made
    gpu.reclaim.base.context = gpu.primary
    status = cu.cuEventCreate(&gpu.outlived, cu.CU_EVENT_DISABLE_TIMING)
    return status or cu.cuEventCreate(&gpu.fence, cu.CU_EVENT_DISABLE_TIMING)


cdef int furnish_feed(Session *s) noexcept nogil:
    return cu.cuStreamCreate(&s.streams.feed, cu.CU_STREAM_NON_BLOCKING)


cdef void forget_fences(Session *s, Gpu *gpu) noexcept nogil:
    """Those that were under way there are past: the device was idle."""
    cdef Stream *stream = s.streams.first
    gpu.epoch = 0
    gpu.unpublished = False
    while stream != NULL:
        if stream.base.context.gpu == gpu:
            stream.epoch = 0
            stream.dirty = False
            stream.active = False
        stream = stream.next


cdef bint is_working(Session *s, int *failure) noexcept nogil:
    """Whether a stream, ours among them, has work under way; if none has, the first failure."""
    cdef Stream *stream = s.streams.first
    cdef bint working = False
    cdef int i
    failure[0] = cu.CUDA_SUCCESS
    while stream != NULL and not working:
        working = tell_state(stream, failure)
        stream = stream.next
    for i in range(s.device.count):
        working = working or tell_state(gpu_at_place(s, i).order, failure)
        working = working or tell_state(gpu_at_place(s, i).reclaim, failure)
    return working


cdef bint tell_state(Stream *stream, int *failure) noexcept nogil:
    """Whether it has work under way. What has failed has none."""
    cdef int status = state_of(stream)
    if failure[0] == cu.CUDA_SUCCESS and status != cu.CUDA_ERROR_NOT_READY:
        failure[0] = status
    return status == cu.CUDA_ERROR_NOT_READY


cdef int state_of(Stream *stream) noexcept nogil:
    """What cuStreamQuery says, on any thread: what is current there stays so."""
    cdef cu.CUcontext before
    cdef int status = cu.cuCtxPushCurrent(stream.base.context.cu)
    if status == cu.CUDA_SUCCESS:
        status = cu.cuStreamQuery(stream.cu)
        cu.cuCtxPopCurrent(&before)
    return status


cdef bint is_at_rest(Session *s) noexcept nogil:
    """Whether nothing runs: all work of the session is done, or has failed."""
    cdef int failure
    return not is_working(s, &failure)


cdef int stream_state(Session *s) noexcept nogil:
    """Of all streams: success, not ready, or what went wrong. The dispatcher, or while it stands still."""
    cdef int failure
    return cu.CUDA_ERROR_NOT_READY if is_working(s, &failure) else failure


cdef int synchronize(Session *s) noexcept nogil:
    """Waits for all work of a session that is being restored."""
    cdef Stream *stream = s.streams.first
    cdef int status = enter(s, s.device.primary)
    for i in range(s.device.count):
        status = status or cu.cuStreamSynchronize(gpu_at_place(s, i).order.cu)
    while stream != NULL and status == cu.CUDA_SUCCESS:
        status = enter(s, stream.base.context)
        status = status or cu.cuStreamSynchronize(stream.cu)
        stream = stream.next
    return status
