# The end of a session: nothing of it may be left for the next one.

cdef enum:
    IDLE_PATIENCE = 300         # milliseconds for the device to finish a gone guest's work; then the process ends
    LOST_PATIENCE = 100         # if it was killed: the second within which all is free has begun long ago
    COPY_PATIENCE = 10000       # if there are no kernels: copies end by themselves


cdef bint device_is_idle(Session *s) noexcept nogil:
    """Whether all work of the session is done, without waiting."""
    cdef Stream *stream = s.streams
    while stream != NULL:
        if cu.cuStreamQuery(stream.cu) != cu.CUDA_SUCCESS:
            return False
        stream = stream.next
    return (cu.cuStreamQuery(s.order.cu) == cu.CUDA_SUCCESS
            and cu.cuStreamQuery(s.reclaim.cu) == cu.CUDA_SUCCESS)


cdef bint settle_down(Session *s) noexcept nogil:
    """Waits a little for device and waiters. False: something still runs, and a running kernel cannot be stopped."""
    cdef int patience = IDLE_PATIENCE if s.closed else LOST_PATIENCE
    cdef int tasks
    if s.stats.launches == 0:
        patience = COPY_PATIENCE
    while patience > 0:
        if device_is_idle(s):
            pthread_mutex_lock(&s.lock)
            tasks = s.tasks
            pthread_mutex_unlock(&s.lock)
            if tasks == 0:
                return True
        usleep(1000)
        patience -= 1
    return False


cdef void stop_waiters(Session *s) noexcept nogil:
    """Only once no task is left."""
    cdef size_t i
    pthread_mutex_lock(&s.lock)
    s.stopping = True
    pthread_cond_broadcast(&s.work)
    pthread_mutex_unlock(&s.lock)
    for i in range(s.waiters.size()):
        pthread_join(s.waiters[0][i], NULL)
    s.waiters.clear()
    s.stopping = False


cdef void stop_sender(Session *s) noexcept nogil:
    cdef bint started
    pthread_mutex_lock(&s.send_lock)
    started = s.sender_started
    s.sender_stopping = True
    pthread_cond_signal(&s.sendable)
    pthread_mutex_unlock(&s.send_lock)
    if started:
        pthread_join(s.sender, NULL)


cdef void linger(Session *s) noexcept nogil:
    """Lets the guest read why it was refused: closing with unread bytes would take the text back from it."""
    cdef pollfd poller
    cdef uint8_t scratch[4096]
    cdef int rounds = 0
    shutdown(s.fd, SHUT_WR)
    poller.fd = s.fd
    poller.events = POLLIN
    while rounds < 1000 and poll(&poller, 1, 50) > 0 and recv(s.fd, scratch, sizeof(scratch), MSG_DONTWAIT) > 0:
        rounds += 1


cdef int unmap_all(Session *s) noexcept nogil:
    cdef uint64_t page = 0
    cdef uint64_t pages = s.window_size >> PAGE_BITS
    cdef int status = enter(s, s.primary)
    cdef uint64_t left = s.mapped_bytes
    while left > 0 and page < pages:
        if s.mapping_pages[page] == 0:
            page += 1
            continue
        left -= <uint64_t>s.mapping_pages[page] << PAGE_BITS
        status = status or unback(s, s.window + (page << PAGE_BITS), <uint64_t>s.mapping_pages[page] << PAGE_BITS)
    madvise(s.mapped, s.window_size >> (PAGE_BITS + 3), MADV_DONTNEED)
    s.mapped_bytes = 0
    return status


cdef int probe(Session *s) noexcept nogil:
    """Proof of health: memory can be mapped at the window's start, cleared, copied out, and taken away again."""
    cdef uint64_t read_back = 1
    cdef int status = map_memory(s, s.window, PAGE)
    status = status or cu.cuStreamSynchronize(s.order.cu)
    status = status or cu.cuMemcpyDtoH(&read_back, s.window + PAGE - sizeof(read_back), sizeof(read_back))
    if status == cu.CUDA_SUCCESS and read_back != 0:
        status = cu.CUDA_ERROR_UNKNOWN
    return unmap_all(s) or status


cdef void drop_everything(Session *s) noexcept nogil:
    """Contexts other than ours, then the rest."""
    cdef Object *object = s.objects
    while object != NULL:
        if object.kind == CONTEXT:
            drop_context(s, <Context *>object)
            object = s.objects
        else:
            object = object.next
    empty_context(s, s.primary)
    drop_own_events(s.primary)
    while s.objects != NULL:
        if s.objects.kind == LIBRARY:
            drop_image(s, <Image *>s.objects)
        else:
            forget(s, s.objects)
    while not s.images.empty():
        drop_bytes(s, s.images.back())


cdef int scrub(Session *s) noexcept nogil:
    """Back to the state of a fresh process, proved; anything but success: this process must be replaced."""
    cdef int i
    cdef int status
    if s.broken or not settle_down(s):
        return cu.CUDA_ERROR_UNKNOWN
    drop_everything(s)
    if s.open_slot >= 0:
        close_slot(s, s.open_slot)
    status = unmap_all(s)
    # Kernels leave traces in local memory and the device heap, and limits stay set: only a reset ends those.
    if status == cu.CUDA_SUCCESS and (s.stats.launches > 0 or s.reconfigured):
        status = reset_primary(s, True)
    elif status == cu.CUDA_SUCCESS:
        for i in range(SLOT_COUNT):
            slot_is_free(s, &s.slots[i])
        status = cu.cuMemHostUnregister(s.staging)
        renew_staging(s)
        status = status or cu.cuMemHostRegister(s.staging, SLOT_SIZE * SLOT_COUNT, cu.CU_MEMHOSTREGISTER_PORTABLE)
    stop_waiters(s)
    discard_output(s)
    s.quota = PAGE
    return status or probe(s)


cdef void begin_session(Session *s, int fd, uint64_t quota, bint resumable, bint restore) noexcept nogil:
    memset(&s.stats, 0, sizeof(Stats))
    s.fd = fd
    s.quota = quota
    s.resumable = resumable
    s.attached = True
    s.received = 0
    s.received_told = 0
    s.log_begin = 0
    s.log_written = 0
    s.log_end = 0
    s.queued = 0
    s.begin = 0
    s.end = 0
    s.sequence = 0
    s.closed = False
    s.reconfigured = False
    s.ending = False
    s.reason[0] = 0
    s.latched = cu.CUDA_SUCCESS
    s.latched_op = 0
    s.image_clock = 0
    s.resting = True
    s.sender_started = False
    s.sender_stopping = False
    s.unwritable = False
    s.log_boundary = 0
    s.frozen = False
    s.holding = False
    s.left = False
    s.serving = True
    s.unkept = False
    s.taken_over = False
    s.by_link = False
    s.following = False
    s.relayed_tail = 0
    s.relayed_missing = 0
    s.stale = 0
    s.restoring = False
    s.sizes = served_sizes
    if restore:
        begin_restore(s)


cdef void run_session(Session *s) noexcept nogil:
    s.current = NULL            # this may be another thread than the last session's
    enter(s, s.primary)
    s.dispatcher = pthread_self()
    serve_frames(s)
    enter(s, s.primary)
    end_service(s)
    if s.left:
        stop_sender(s)
        drop_unsent(s)
        return
    pthread_mutex_lock(&s.send_lock)
    forward_output(s)
    pthread_mutex_unlock(&s.send_lock)
    if memcmp(s.reason, b"malformed", 9) == 0:
        refuse(s, GF_REFUSED_MALFORMED)
        linger(s)
    elif memcmp(s.reason, b"revoked", 7) == 0:
        refuse(s, GF_REFUSED_SHUTTING_DOWN)
    shutdown(s.fd, 2)
    stop_sender(s)
    drop_unsent(s)
