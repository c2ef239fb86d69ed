# The end of a session: nothing of it may be left for the next one.

cdef enum:
    IDLE_PATIENCE = 300         # milliseconds for the device to finish a gone guest's work; then the process ends
    LOST_PATIENCE = 100         # if it was killed: the second within which all is free has begun long ago
    COPY_PATIENCE = 10000       # if there is nothing else: copies end by themselves


cdef bint settle_down(Session *s) noexcept nogil:
    """Waits a little for device and waiters. False: something still runs, and a running kernel cannot be stopped."""
    cdef int patience = IDLE_PATIENCE if s.input.closed else LOST_PATIENCE
    cdef int tasks
    if not may_never_end(s):
        patience = COPY_PATIENCE
    while patience > 0:
        if stream_state(s) == cu.CUDA_SUCCESS:
            pthread_mutex_lock(&s.lock)
            tasks = s.waiters.tasks
            pthread_mutex_unlock(&s.lock)
            if tasks == 0:
                return True
        usleep(1000)
        patience -= 1
    return False


cdef int probe(Session *s) noexcept nogil:
    """Proof of health: memory can be mapped at the window's start, cleared, copied out, and taken away again."""
    cdef uint64_t read_back = 1
    cdef int status = cu.CUDA_SUCCESS
    cdef int i
    cdef Gpu *gpu
    for i in range(s.device.count):
        gpu = gpu_at_place(s, i)
        status = status or map_memory(s, gpu, s.window.base, PAGE)
        status = status or enter(s, gpu.primary)
        status = status or cu.cuStreamSynchronize(gpu.order.cu)
        status = status or cu.cuMemcpyDtoH(&read_back, s.window.base + PAGE - sizeof(read_back), sizeof(read_back))
        if status == cu.CUDA_SUCCESS and read_back != 0:
            status = cu.CUDA_ERROR_UNKNOWN
        status = unmap_all(s) or status
    return status


cdef void drop_everything(Session *s) noexcept nogil:
    """Contexts other than ours, then the rest."""
    cdef Object *object
    cdef int i
    while s.device.others != NULL:
        drop_context(s, s.device.others)
    for i in range(s.device.count):
        empty_context(s, gpu_at_place(s, i).primary)
        drop_own_events(gpu_at_place(s, i).primary)
        gpu_at_place(s, i).pools_reached_by = gpu_at_place(s, i).reached_by = 0
    object = first_owned(s, &s.objects.root)
    while object != NULL:
        drop_object(s, object)
        object = first_owned(s, &s.objects.root)
    drop_all_bytes(s)


cdef int scrub(Session *s) noexcept nogil:
    """Back to the state of a fresh process, proved; anything but success: this process must be replaced."""
    cdef int status
    cdef int i
    cdef uint64_t began
    if s.device.broken or not settle_down(s):
        return cu.CUDA_ERROR_UNKNOWN
    finish_turn(s, 0)
    began = now()
    drop_everything(s)
    close_open_slot(s)
    end_sharing(s)
    end_records(s)
    status = unmap_all(s)
    # Kernels leave traces in local memory and the device heap, and limits stay set: only a reset ends those.
    if status == cu.CUDA_SUCCESS and (s.stats.launches > 0 or s.device.reconfigured):
        for i in range(s.device.count):
            status = status or reset_primary(s, gpu_at_place(s, i), True)
    elif status == cu.CUDA_SUCCESS:
        status = clear_staging(s)
    stop_waiters(s)
    discard_output(s)
    begin_window(s, PAGE)
    begin_book(s)
    begin_residency(s)
    status = status or probe(s)
    finish_turn(s, now() - began)
    return status


cdef void begin_session(Session *s, int fd, gf_tls *tls, uint64_t quota, bint resumable, bint restore,
                        uint64_t host_memory) noexcept nogil:
    """Every room as if there had been no session before."""
    begin_stats(s)
    begin_budget(s, host_memory)
    begin_window(s, quota)
    begin_book(s)
    begin_residency(s)
    begin_sharing(s)
    begin_device(s)
    begin_connection(s, fd, tls, resumable and not restore)
    begin_sending(s)
    begin_log(s)
    begin_input(s)
    begin_images(s)
    begin_links(s)
    begin_graphs(s)
    begin_arrays(s)
    begin_journal(s)
    begin_arrival(s, restore, resumable)
    begin_host_calls(s)
    begin_turn(s)
    begin_state(s)


cdef void run_session(Session *s) noexcept nogil:
    forget_current(s)           # this may be another thread than the last session's
    enter(s, s.device.primary)
    begin_service(s)
    serve_frames(s)
    end_turns_of(s)
    give_up_host_calls(s)
    complete_records(s)
    enter(s, s.device.primary)
    end_service(s)
    if s.state.left:
        stop_sender(s)
        drop_unsent(s)
        return
    pthread_mutex_lock(&s.sending.lock)
    forward_output(s)
    pthread_mutex_unlock(&s.sending.lock)
    if s.state.cause == MALFORMED or s.state.cause == DEVICE_FAILED:
        refuse(s, GF_REFUSED_MALFORMED if s.state.cause == MALFORMED else GF_REFUSED_SHUTTING_DOWN)
        linger(s)
    elif s.state.cause == REVOKED:
        refuse(s, GF_REFUSED_SHUTTING_DOWN)
    shutdown(s.connection.fd, 2)
    stop_sender(s)
    drop_unsent(s)
