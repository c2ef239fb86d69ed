# Functions of the program in streams. The driver comes to one on a thread of its own, which waits here; a waiter asks the
# guest, for it may ask the driver how far copies out are, which no host function may; the dispatcher is told when the
# function has returned. What a copy behind such a function reads is sent while the stream stands there.

cdef Session *hosting = NULL     # whom the driver's threads call for


cdef void call_guest(Session *s, uint64_t call, int status) noexcept nogil:
    cdef HostCall waiting
    cdef HostCall **link
    cdef Task *task = new_task(TASK_HOST_CALL, NULL, s.device.primary)
    pthread_mutex_lock(&s.lock)
    s.host_calls.tickets += 1
    waiting.ticket = s.host_calls.tickets
    waiting.done = s.host_calls.over
    waiting.next = s.host_calls.first
    s.host_calls.first = &waiting
    pthread_mutex_unlock(&s.lock)
    task.handle = call
    task.address = waiting.ticket
    task.status = status
    if waiting.done:
        free(task)
    else:
        submit(s, NULL, task)
    pthread_mutex_lock(&s.lock)
    while not waiting.done and not s.host_calls.over:
        pthread_cond_wait(&s.host_calls.returned, &s.lock)
    link = &s.host_calls.first
    while link[0] != &waiting:
        link = &link[0].next
    link[0] = waiting.next
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef void host_function(void *call) noexcept nogil:
    call_guest(hosting, <uint64_t>call, cu.CUDA_SUCCESS)


cdef void host_callback(cu.CUstream stream, cu.CUresult status, void *call) noexcept nogil:
    call_guest(hosting, <uint64_t>call, status)


cdef void host_params(uint64_t call, cu.CUDA_HOST_NODE_PARAMS *params) noexcept nogil:
    """Of a graph's node that has the guest do something."""
    params.fn = <cu.CUhostFn>host_function
    params.userData = <void *>call


cdef void ask_guest(Session *s, Task *task) noexcept nogil:
    """A waiter: whatever the stream brought the guest before has arrived there when it reads this."""
    cdef uint8_t head[HEAD_SIZE]
    cdef gf_header *header = <gf_header *>head
    cdef gf_host_call *asked = <gf_host_call *>(head + sizeof(gf_header))
    memset(head, 0, sizeof(gf_header) + sizeof(gf_host_call))
    header.size = sizeof(gf_header) + sizeof(gf_host_call)
    header.op = GF_OP_HOST_CALL
    asked.call = task.handle
    asked.ticket = task.address
    asked.status = task.status
    pthread_mutex_lock(&s.sending.lock)
    settle_older(s, ~<uint64_t>0, task.status)
    push(s, head, header.size, 0, NO_PIECE)
    pthread_mutex_unlock(&s.sending.lock)


cdef bint awaits_guest(Session *s) noexcept nogil:
    """Whether a stream stands still until the guest has said something."""
    cdef bint waits
    pthread_mutex_lock(&s.lock)
    waits = s.host_calls.first != NULL
    pthread_mutex_unlock(&s.lock)
    return waits


cdef HostCall *find_host_call(Session *s, uint64_t ticket) noexcept nogil:
    """s.lock is held."""
    cdef HostCall *waiting = s.host_calls.first
    while waiting != NULL and waiting.ticket != ticket:
        waiting = waiting.next
    return waiting


cdef void give_up_host_calls(Session *s) noexcept nogil:
    """The guest is gone: streams go on without it."""
    pthread_mutex_lock(&s.lock)
    s.host_calls.over = True
    pthread_cond_broadcast(&s.host_calls.returned)
    pthread_mutex_unlock(&s.lock)


cdef void begin_host_calls(Session *s) noexcept nogil:
    global hosting
    hosting = s
    s.host_calls.over = False


cdef void reserve_host_calls(Session *s) noexcept nogil:
    pthread_cond_init(&s.host_calls.returned, NULL)


cdef int sessionHostCall_call(Session *s, Frame *f, gf_req_sessionHostCall *q) noexcept nogil:
    cdef Task *task
    cdef Stream *stream
    cdef int status = use_stream(s, f, q.stream, &stream)
    if not q.always:
        return status or cu.cuLaunchHostFunc(stream.cu, <cu.CUhostFn>host_function, <void *>q.call)
    status = status or cu.cuStreamAddCallback(stream.cu, <cu.CUstreamCallback>host_callback, <void *>q.call, 0)
    if gf_destroys_context(status):     # the guest did not know that yet, and was told that it is called
        task = new_task(TASK_HOST_CALL, NULL, s.device.primary)
        task.handle = q.call
        task.status = status
        submit(s, NULL, task)
    return status


cdef int sessionHostDone_call(Session *s, Frame *f, gf_req_sessionHostDone *q) noexcept nogil:
    cdef HostCall *waiting
    if q.ticket == 0:               # no stream waits
        return cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    waiting = find_host_call(s, q.ticket)
    if waiting != NULL:
        waiting.done = True
        pthread_cond_broadcast(&s.host_calls.returned)
    pthread_mutex_unlock(&s.lock)
    return cu.CUDA_ERROR_INVALID_VALUE if waiting == NULL else cu.CUDA_SUCCESS


cdef uint64_t spanned(uint64_t pitch, uint64_t width, uint64_t rows) noexcept nogil:
    return gf_plus(gf_times(pitch, gf_minus(rows, 1)), width)


cdef int sessionHostCopyIn_call(Session *s, Frame *f, gf_req_sessionHostCopyIn *q) noexcept nogil:
    """Beside staging, whose room may be taken by what waits for this. What is freed behind it in its stream is
    still there, though nobody else may name it."""
    cdef size_t size = q.rows * q.width
    cdef uint64_t span = spanned(q.pitch, q.width, q.rows)
    cdef uint8_t *data = NULL
    cdef bint waits
    cdef int status
    pthread_mutex_lock(&s.lock)
    waits = find_host_call(s, q.ticket) != NULL
    pthread_mutex_unlock(&s.lock)
    waits = waits and (may_write(s, q.address, span) or is_there_still(s, q.address, span))
    waits = waits and not rows_overlap(q.pitch, q.width, q.rows)
    if waits:
        data = <uint8_t *>malloc(size)
    status = read_payload(s, data, size)
    if status == cu.CUDA_SUCCESS and data == NULL:
        status = cu.CUDA_ERROR_OUT_OF_MEMORY if waits else cu.CUDA_ERROR_INVALID_VALUE
    status = status or enter(s, s.device.primary)
    status = status or copy_rows_in(q.address, q.pitch, data, q.width, q.rows, s.streams.feed)
    status = status or cu.cuStreamSynchronize(s.streams.feed)
    free(data)
    return status


cdef int sessionHostCopyOut_call(Session *s, Frame *f, gf_req_sessionHostCopyOut *q) noexcept nogil:
    """Beside staging, likewise."""
    cdef size_t size = q.rows * q.width
    cdef Piece piece
    cdef cu.CUDA_MEMCPY2D copy
    cdef int status
    pthread_mutex_lock(&s.lock)
    status = cu.CUDA_ERROR_INVALID_VALUE if find_host_call(s, q.ticket) == NULL else cu.CUDA_SUCCESS
    pthread_mutex_unlock(&s.lock)
    if status != cu.CUDA_SUCCESS or rows_overlap(q.pitch, q.width, q.rows) \
            or not is_there_still(s, q.address, spanned(q.pitch, q.width, q.rows)):
        return cu.CUDA_ERROR_INVALID_VALUE
    piece.slot = -1
    piece.data = <uint8_t *>malloc(size)
    if piece.data == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    rows_copy(&copy, q.width, q.rows)
    copy.srcDevice = q.address
    copy.srcPitch = q.pitch
    copy.dstMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.dstHost = piece.data
    copy.dstPitch = q.width
    status = enter(s, s.device.primary)
    status = status or cu.cuMemcpy2DAsync(&copy, s.streams.feed) or cu.cuStreamSynchronize(s.streams.feed)
    if status != cu.CUDA_SUCCESS:
        free(piece.data)
        return status
    reply(s, f, cu.CUDA_SUCCESS, size, piece)
    return DEFERRED
