# Contexts. The primary one is ours and always there; others come and go with the guest's calls.

cdef enum:
    LEAST_HEAP = 8 << 20        # of kernels, whatever the quota: what a device gives unasked


cdef Context *new_context(Session *s, Gpu *gpu, cu.CUcontext made) noexcept nogil:
    cdef Context *context = <Context *>calloc(1, sizeof(Context))
    context.gpu = gpu
    context.events = new vector[cu.CUevent]()
    context.peers = new vector[uint64_t]()
    context.cu = made
    context.base.context = context
    context.legacy = link_stream(s, <cu.CUstream>cu.CU_STREAM_LEGACY, False)
    context.legacy.base.context = context
    return context


cdef void link_context(Session *s, Context *context) noexcept nogil:
    context.next = s.device.others
    if context.next != NULL:
        context.next.previous = context
    s.device.others = context
    s.device.contexts += 1


cdef void unlink_context(Session *s, Context *context) noexcept nogil:
    if context.previous != NULL:
        context.previous.next = context.next
    else:
        s.device.others = context.next
    if context.next != NULL:
        context.next.previous = context.previous
    s.device.contexts -= 1


cdef inline Context *next_context(Session *s, Context *context) noexcept nogil:
    """The next one beside the primary ones."""
    s.objects.steps += context.next != NULL
    return context.next


cdef void free_context(Context *context) noexcept nogil:
    del context.events
    del context.peers
    free(context)


cdef void empty_context(Session *s, Context *context) noexcept nogil:
    """Destroys what the guest made in a context."""
    cdef Object *object
    wait_for_tasks(s)
    enter(s, context)
    object = first_owned(s, &context.base)
    while object != NULL:
        drop_object(s, object)
        object = first_owned(s, &context.base)


cdef void forget_own_events(Context *context) noexcept nogil:
    context.anchor = NULL
    context.copied = NULL
    context.uncovered = False
    context.noted = False


cdef void drop_own_events(Context *context) noexcept nogil:
    if context.anchor != NULL:
        cu.cuEventDestroy(context.anchor)
    if context.copied != NULL:
        cu.cuEventDestroy(context.copied)
    forget_own_events(context)


cdef void drop_event_pool(Session *s, Context *context) noexcept nogil:
    while not context.events.empty():
        cu.cuEventDestroy(context.events.back())
        context.events.pop_back()
    drop_own_events(context)


cdef void drop_default_streams(Session *s, Context *context) noexcept nogil:
    if context.per_thread != NULL:
        unlink_stream(s, context.per_thread)
        cu.cuStreamDestroy(context.per_thread.cu)
        free(context.per_thread)
        context.per_thread = NULL
    unlink_stream(s, context.legacy)
    free(context.legacy)
    context.legacy = NULL


cdef void forget_context(Session *s, Context *context) noexcept nogil:
    """Kernels of libraries have a form in each context: this one's are gone. Closed slots let go of its events."""
    forget_changes(s, context)
    forget_forms(context)
    forget_staged(s, context)


cdef inline bint is_lost(Session *s, Context *context) noexcept nogil:
    return enter(s, context) != cu.CUDA_SUCCESS or gf_destroys_context(cu.cuStreamQuery(NULL))


cdef void review_losses(Session *s) noexcept nogil:
    """A context has ended, and its failure with it: whether another one is lost, each is asked."""
    cdef Context *context = s.device.others
    cdef bint lost = False
    cdef int i
    for i in range(s.device.count):
        lost = lost or is_lost(s, gpu_at_place(s, i).primary)
    while context != NULL and not lost:
        lost = is_lost(s, context)
        context = next_context(s, context)
    s.device.broken = lost
    enter(s, s.device.primary)


cdef int drop_context(Session *s, Context *context) noexcept nogil:
    empty_context(s, context)
    drop_default_streams(s, context)
    forget_context(s, context)
    drop_event_pool(s, context)
    forget(s, &context.base)
    unlink_context(s, context)
    cdef int status = cu.cuCtxDestroy(context.cu)
    s.device.current = NULL
    enter(s, s.device.primary)
    review_found(s)
    if s.device.broken:
        review_losses(s)
    if not context.peers.empty():
        status = review_reach(s, context.gpu) or status
    free_context(context)
    return status


cdef int find_context(Session *s, Frame *f, uint64_t handle, Context **found) noexcept nogil:
    found[0] = <Context *>find(s, handle, CONTEXT)
    return cu.CUDA_ERROR_INVALID_CONTEXT if found[0] == NULL else cu.CUDA_SUCCESS


cdef uint32_t devices_of_peers(Session *s, Context *context) noexcept nogil:
    """A bit for the device of each context that this one's kernels may reach; contexts that have ended are dropped from
    its list on the way."""
    cdef vector[uint64_t] *peers = context.peers
    cdef Context *peer
    cdef uint32_t devices = 0
    cdef size_t i = 0
    while i < peers.size():
        peer = <Context *>find(s, peers[0][i], CONTEXT)
        if peer == NULL:
            peers[0][i] = peers.back()
            peers.pop_back()
        else:
            devices |= <uint32_t>1 << peer.gpu.place
            i += 1
    return devices


cdef uint32_t peers_of(Session *s, Gpu *gpu) noexcept nogil:
    """What contexts of a device may reach: memory is opened to a device, not to one of its contexts."""
    cdef uint32_t devices = devices_of_peers(s, gpu.primary)
    cdef Context *context = s.device.others
    while context != NULL:
        if context.gpu == gpu:
            devices |= devices_of_peers(s, context)
        context = next_context(s, context)
    return devices


cdef int review_reach(Session *s, Gpu *gpu) noexcept nogil:
    """After what contexts of the device may reach has changed."""
    cdef uint32_t peers = peers_of(s, gpu)
    cdef uint32_t bit = <uint32_t>1 << gpu.place
    cdef uint32_t before
    cdef Gpu *peer
    cdef int i
    cdef int status = cu.CUDA_SUCCESS
    for i in range(s.device.count):
        peer = gpu_at_place(s, i)
        before = peer.reached_by
        if peers >> i & 1:
            peer.reached_by |= bit
        else:
            peer.reached_by &= ~(bit & ~peer.pools_reached_by)
        if peer.reached_by != before:
            status = open_memory(s, peer, gpu) or status
    return status


cdef int sessionPeerAccess_call(Session *s, Frame *f, gf_req_sessionPeerAccess *q, Context *peer) noexcept nogil:
    """The driver judges, and opens what is its own: variables. Memory of the window is opened here."""
    cdef vector[uint64_t] *peers = f.context.peers
    cdef size_t i
    cdef int status
    if q.enable:
        status = cu.cuCtxEnablePeerAccess(peer.cu, 0)
    else:
        status = cu.cuCtxDisablePeerAccess(peer.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    if q.enable:
        peers.push_back(q.peer)
    else:
        for i in range(peers.size()):
            if peers[0][i] == q.peer:
                peers[0][i] = 0     # names nobody: dropped with those that are gone
    return review_reach(s, f.context.gpu)


cdef int reach_pools(Session *s, Gpu *gpu, Gpu *owner) noexcept nogil:
    """For as long as the session lives: pools share their pages with what lies beside them."""
    cdef uint32_t bit = <uint32_t>1 << gpu.place
    if gpu == owner or owner.pools_reached_by & bit:
        return cu.CUDA_SUCCESS
    owner.pools_reached_by |= bit
    owner.reached_by |= bit
    return open_memory(s, owner, gpu)


cdef int cuCtxSetLimit_call(Session *s, Frame *f, gf_req_cuCtxSetLimit *q) noexcept nogil:
    """The heap of kernels is memory beside the quota: at most as much again."""
    if q.limit == cu.CU_LIMIT_MALLOC_HEAP_SIZE and q.value > max(s.window.quota, <uint64_t>LEAST_HEAP):
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.cuCtxSetLimit(<cu.CUlimit>q.limit, q.value)


cdef int cuCtxCreate_v2_call(Session *s, Frame *f, gf_req_cuCtxCreate_v2 *q, cu.CUcontext *made) noexcept nogil:
    cdef int status = cover_copies(s, s.device.primary)
    return status or cu.cuCtxCreate(made, NULL, q.flags, device_of(s, q.dev))


cdef int adopt_context(Session *s, Frame *f, uint64_t handle, cu.CUcontext made) noexcept nogil:
    """A new context, which the driver has made current."""
    cdef Context *context
    cdef cu.CUdevice device = 0
    cdef int status = cu.cuCtxGetDevice(&device)
    context = new_context(s, gpu_of(s, device), made)
    s.device.current = context
    status = status or put(s, handle, CONTEXT, &context.base, context)
    if status == cu.CUDA_SUCCESS:
        link_context(s, context)
        return status
    drop_default_streams(s, context)
    cu.cuCtxDestroy(made)
    s.device.current = NULL
    enter(s, s.device.primary)
    free_context(context)
    return status


cdef int retire_context(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Context *context = <Context *>find(s, handle, CONTEXT)
    if context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    if context == context.gpu.primary:
        return cu.CUDA_ERROR_INVALID_VALUE
    return drop_context(s, context)


cdef int on_cuDevicePrimaryCtxRetain(Session *s, Frame *f, gf_req_cuDevicePrimaryCtxRetain *q) noexcept nogil:
    return cu.CUDA_SUCCESS      # retained for good when the process started


cdef int cuDevicePrimaryCtxRelease_v2_call(Session *s, Frame *f,
                                           gf_req_cuDevicePrimaryCtxRelease_v2 *q) noexcept nogil:
    return cu.CUDA_SUCCESS      # the guest counts, and asks for a reset when it reaches zero


cdef int cuDevicePrimaryCtxReset_v2_call(Session *s, Frame *f,
                                         gf_req_cuDevicePrimaryCtxReset_v2 *q) noexcept nogil:
    cdef int status = reset_primary(s, s.device.shown[q.dev], False)
    if status != cu.CUDA_SUCCESS:
        s.device.broken = True
        end_session(s, DEVICE_FAILED, b"device error: the primary context could not be reset")
    else:
        follow(s, f)
    return status


cdef int furnish_primary(Session *s, Gpu *gpu) noexcept nogil:
    """What we keep in a primary context: two streams and the fence; in the first one, pinned staging too."""
    cdef int status = furnish_streams(s, gpu)
    if status == cu.CUDA_SUCCESS and gpu.primary == s.device.primary:
        status = pin_staging(s) or furnish_feed(s)
    return status


cdef void come_to_rest(Session *s, Gpu *gpu) noexcept nogil:
    """What ends with a primary context may be used on every device: by fences, and by copies out of staging."""
    cdef int i
    for i in range(s.device.count):
        if gpu.primary == s.device.primary or gpu_at_place(s, i) == gpu:
            enter(s, gpu_at_place(s, i).primary)
            cu.cuCtxSynchronize()
    wait_for_tasks(s)


cdef int reset_primary(Session *s, Gpu *gpu, bint discard_staging) noexcept nogil:
    """Really resets a primary context, and furnishes it again. It mends a sticky error too."""
    cdef int status
    cdef cu.CUcontext again
    cdef Context *primary = gpu.primary
    cdef bint first = primary == s.device.primary
    come_to_rest(s, gpu)
    pthread_mutex_lock(&s.move.lock)
    drop_copy_streams(s)
    if first:
        end_move(s)
    else:
        drop_side_stream(s, gpu)
    pthread_mutex_unlock(&s.move.lock)
    empty_context(s, primary)
    if primary.per_thread != NULL:
        unlink_stream(s, primary.per_thread)
        free(primary.per_thread)
        primary.per_thread = NULL
    close_open_slot(s)
    forget_context(s, primary)
    if first:
        unpin_staging(s)
        forget_registration(s)
    if not primary.peers.empty():
        primary.peers.clear()
        review_reach(s, gpu)    # to take away what a device may reach that is being reset cannot hurt it
    primary.events.clear()
    forget_own_events(primary)
    if first and discard_staging:
        renew_staging(s)
    enter(s, primary)
    status = cu.cuDevicePrimaryCtxReset(gpu.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    # A reset context is inactive until it is retained anew.
    cu.cuDevicePrimaryCtxRelease(gpu.cu)
    status = cu.cuDevicePrimaryCtxRetain(&again, gpu.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    primary.cu = again
    s.device.current = NULL
    status = enter(s, primary)
    review_found(s)
    status = status or furnish_primary(s, gpu)
    forget_fences(s, gpu)
    if status == cu.CUDA_SUCCESS and s.device.broken:
        review_losses(s)
        status = enter(s, primary)
    return status
