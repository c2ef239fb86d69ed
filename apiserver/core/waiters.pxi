# Waiters: threads that wait for the device so that the dispatcher never does. Tasks of one lane are done in order.


cdef cu.CUevent take_event(Session *s, Context *context) noexcept nogil:
    cdef cu.CUevent event = NULL
    pthread_mutex_lock(&s.lock)
    if not context.events.empty():
        event = context.events.back()
        context.events.pop_back()
    pthread_mutex_unlock(&s.lock)
    if event == NULL:
        event = new_event(context)
    return event


cdef cu.CUevent new_event(Context *context) noexcept nogil:
    """Of that context, whichever is current: a stream may be waited for in another one."""
    cdef cu.CUevent event = NULL
    cdef cu.CUcontext before
    if cu.cuCtxPushCurrent(context.cu) != cu.CUDA_SUCCESS:
        return NULL
    if cu.cuEventCreate(&event, cu.CU_EVENT_DISABLE_TIMING) != cu.CUDA_SUCCESS:
        event = NULL
    cu.cuCtxPopCurrent(&before)
    return event


cdef void give_event(Session *s, Context *context, cu.CUevent event) noexcept nogil:
    if event == NULL:
        return
    pthread_mutex_lock(&s.lock)
    context.events.push_back(event)
    pthread_mutex_unlock(&s.lock)


cdef Task *new_task(TaskKind kind, Frame *f, Context *context) noexcept nogil:
    cdef Task *task = <Task *>calloc(1, sizeof(Task))
    task.kind = kind
    task.context = context
    task.piece = NO_PIECE
    if f != NULL:
        task.frame = f[0]
        task.frame.body = NULL
    return task


cdef void wait_for_waiters(Session *s) noexcept nogil:
    """Back-pressure on a guest that asks for ever more that has to be waited for."""
    if s.waiters.tasks <= TASK_LIMIT:       # a hint: after each frame a lock would cost more
        return
    pthread_mutex_lock(&s.lock)
    while s.waiters.tasks > TASK_LIMIT and not s.state.ending and not s.state.holding:
        wait_briefly(&s.changed, &s.lock)
    pthread_mutex_unlock(&s.lock)


cdef void submit(Session *s, Lane *lane, Task *task) noexcept nogil:
    """Hands a task to the waiters, behind those of its lane (NULL: it follows none)."""
    cdef pthread_t thread
    if lane == NULL:
        lane = &task.own
    pthread_mutex_lock(&s.lock)
    s.waiters.tasks += 1
    if lane.head == NULL:
        lane.head = task
    else:
        lane.tail.next = task
    lane.tail = task
    if not lane.busy:
        lane.busy = True
        lane.next = NULL
        if s.waiters.ready == NULL:
            s.waiters.ready = lane
        else:
            s.waiters.ready_tail.next = lane
        s.waiters.ready_tail = lane
        s.waiters.ready_count += 1
        pthread_cond_signal(&s.waiters.work)
    # Whom all waiters may wait for, the guest's functions, has one all the same.
    if s.waiters.ready_count > s.waiters.idle \
            and (s.waiters.threads.size() < WAITER_LIMIT or task.kind == TASK_HOST_CALL):
        if pthread_create(&thread, NULL, waiter_main, s) == 0:
            s.waiters.threads.push_back(thread)
        elif s.waiters.threads.size() == 0:
            serve_lanes(s)          # there is no room for threads: else nobody would ever do it
            forget_current(s)
    pthread_mutex_unlock(&s.lock)


cdef void submit_load(Session *s, Task *task) noexcept nogil:
    """Images are loaded one after the other, as they came: the driver gives variables their places in this order, and where
    the session is rebuilt they must have the same."""
    submit(s, &s.waiters.loads, task)


cdef void await_loads(Session *s) noexcept nogil:
    """Before the dispatcher does what may load a library into a context: likewise."""
    if not s.waiters.loads.busy:        # who submits is the dispatcher itself
        return
    pthread_mutex_lock(&s.lock)
    while s.waiters.loads.busy and not s.state.ending:
        wait_briefly(&s.changed, &s.lock)
    pthread_mutex_unlock(&s.lock)


cdef void *waiter_main(void *argument) noexcept nogil:
    cdef Session *s = <Session *>argument
    cdef bint needed = True
    cu.cuCtxSetCurrent(s.device.primary.cu)
    pthread_mutex_lock(&s.lock)
    while needed:
        s.waiters.idle += 1
        # Not without an end: before its release 2.41 glibc may lose a signal.
        while s.waiters.ready == NULL and not s.waiters.stopping and needed:
            needed = wait_for_at_most(&s.waiters.work, &s.lock, 1000000000)
        s.waiters.idle -= 1
        needed = s.waiters.ready != NULL
        serve_lanes(s)
    if not s.waiters.stopping:
        retire(s)
    pthread_mutex_unlock(&s.lock)
    return NULL


cdef void retire(Session *s) noexcept nogil:
    """This thread ends before the session does. s.lock is held."""
    cdef size_t i = 0
    while not pthread_equal(s.waiters.threads[0][i], pthread_self()):
        i += 1
    s.waiters.threads[0][i] = s.waiters.threads.back()
    s.waiters.threads.pop_back()
    pthread_detach(pthread_self())


cdef void serve_lanes(Session *s) noexcept nogil:
    """As long as any is ready. s.lock is held, but not while a task runs."""
    cdef Lane *lane
    cdef Task *task
    cdef bint alone
    while s.waiters.ready != NULL:
        lane = s.waiters.ready
        s.waiters.ready = lane.next
        s.waiters.ready_count -= 1
        while lane != NULL and lane.head != NULL:
            task = lane.head
            lane.head = task.next
            alone = lane == &task.own
            pthread_mutex_unlock(&s.lock)
            run_task(s, task)
            free(task)
            pthread_mutex_lock(&s.lock)
            s.waiters.tasks -= 1
            pthread_cond_broadcast(&s.changed)
            if alone:
                lane = NULL
        if lane != NULL:
            lane.busy = False
            if lane.orphan:
                free(lane)


cdef void run_task(Session *s, Task *task) noexcept nogil:
    cdef int status
    if task.kind == TASK_COPY_OUT:
        status = cu.cuEventSynchronize(task.event)
        pthread_mutex_lock(&s.sending.lock)
        if not task.answered:
            settle(s, task, status)
        pthread_mutex_unlock(&s.sending.lock)
    elif task.kind == TASK_STREAM:
        reply(s, &task.frame, cu.cuEventSynchronize(task.event), 0, NO_PIECE)
    elif task.kind == TASK_EVENT:
        if task.subject.arena != NULL:
            status = await_record(s, task.subject, task.handle)
        else:
            status = cu.cuEventSynchronize(task.subject.cu)
        reply(s, &task.frame, status, 0, NO_PIECE)
        leave_event(s, task.subject)
    elif task.kind == TASK_CONTEXT:
        cu.cuCtxSetCurrent(task.context.cu)
        reply(s, &task.frame, cu.cuCtxSynchronize(), 0, NO_PIECE)
        cu.cuCtxSetCurrent(s.device.primary.cu)
    elif task.kind == TASK_LOAD:
        run_load(s, task)
    elif task.kind == TASK_LINK:
        run_link(s, task)
    elif task.kind == TASK_RETURNED:
        reply(s, &task.frame, cu.CUDA_SUCCESS, 0, NO_PIECE)
    elif task.kind == TASK_HOST_CALL:
        ask_guest(s, task)
    else:
        run_unmap(s, task)
    give_event(s, task.context, task.event)


cdef void wait_for_tasks(Session *s) noexcept nogil:
    """Until no waiter is at work: whatever they use may be destroyed then."""
    pthread_mutex_lock(&s.lock)
    while s.waiters.tasks > 0:
        wait_briefly(&s.changed, &s.lock)
    pthread_mutex_unlock(&s.lock)


cdef int await_stream(Session *s, Frame *f, Stream *stream) noexcept nogil:
    # An event instead of cuStreamSynchronize: the guest may destroy the stream meanwhile.
    cdef Task *task = new_task(TASK_STREAM, f, stream.base.context)
    task.event = take_event(s, task.context)
    cdef int status = cu.cuEventRecord(task.event, stream.cu) or cu.cuEventQuery(task.event)
    if status != cu.CUDA_ERROR_NOT_READY:
        give_event(s, task.context, task.event)
        free(task)
        return status
    submit(s, stream.lane, task)
    return DEFERRED


cdef int await_event(Session *s, Frame *f, Event *event) noexcept nogil:
    cdef int status = event_state(s, event)
    if status != cu.CUDA_ERROR_NOT_READY:
        return status
    cdef Task *task = new_task(TASK_EVENT, f, event.base.context)
    if event.arena != NULL:
        task.handle = last_record(event)
    task.subject = event
    pthread_mutex_lock(&s.lock)
    event.waiters += 1
    pthread_mutex_unlock(&s.lock)
    submit(s, NULL, task)
    return DEFERRED


cdef int await_context(Session *s, Frame *f) noexcept nogil:
    submit(s, NULL, new_task(TASK_CONTEXT, f, f.context))
    return DEFERRED


cdef void leave_event(Session *s, Event *event) noexcept nogil:
    """A waiter is done with an event; the last one destroys it if the guest has done so."""
    cdef bint last
    pthread_mutex_lock(&s.lock)
    event.waiters -= 1
    last = event.destroyed and event.waiters == 0
    pthread_mutex_unlock(&s.lock)
    if last:
        cu.cuEventDestroy(event.cu)
        free(event)


cdef void stop_waiters(Session *s) noexcept nogil:
    """Only once no task is left."""
    cdef size_t i
    pthread_mutex_lock(&s.lock)
    s.waiters.stopping = True
    pthread_cond_broadcast(&s.waiters.work)
    pthread_mutex_unlock(&s.lock)
    for i in range(s.waiters.threads.size()):
        pthread_join(s.waiters.threads[0][i], NULL)
    s.waiters.threads.clear()
    s.waiters.stopping = False
