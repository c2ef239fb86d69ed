# A session's memory leaves the device, and comes back to the same addresses before its next work. Whoever takes it away or
# brings it back is another thread than the dispatcher, under `move.lock` (DESIGN.md). Here is what it does on the device; where the
# copies are is residing.py's business.

cdef enum:
    PART = 4 << 20              # bytes that one stream copies at once


cdef void begin_residency(Session *s) noexcept nogil:
    """All is on the device, and all may be."""
    pthread_mutex_lock(&s.lock)
    s.residency.absent = False
    s.residency.unmapped = False
    s.residency.waiting = False
    s.residency.leaving = False
    s.residency.wished = False
    s.residency.told = False
    s.residency.refused = False
    s.residency.allowance = ~<uint64_t>0
    s.residency.wanted = 0
    s.residency.quiet_since = 0
    pthread_mutex_unlock(&s.lock)
    forget_written(s)


cdef inline void note_work(Session *s) noexcept nogil:
    """The device may write anywhere from now on."""
    s.residency.launches += 1
    s.residency.changes += 1


cdef inline void note_written(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """A range of the window, by a call that says so."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t pages = page_of(s, address + size - 1) - page + 1
    s.residency.changes += 1
    if s.residency.written != NULL:
        mark(s.residency.written, page, pages, True)
        mark_homes(s, s.residency.written, page, pages)


cdef void forget_written(Session *s) noexcept nogil:
    if s.residency.written == NULL:
        s.residency.written = <uint64_t *>reserve(s.window.size >> (PAGE_BITS + 3))
    else:
        madvise(s.residency.written, s.window.size >> (PAGE_BITS + 3), MADV_DONTNEED)


cdef inline void note_quiet(Session *s, uint64_t since) noexcept nogil:
    """The dispatcher waits for its guest since then, or (0) it does not."""
    s.residency.quiet_since = since


cdef bint is_physical(Session *s) noexcept nogil:
    """Whether the memory that aliases show is there."""
    return not s.residency.unmapped


cdef bint is_allowed(Session *s, uint64_t size) noexcept nogil:
    """Whether so many bytes of the session may be on each of its devices now."""
    cdef bint fine
    pthread_mutex_lock(&s.lock)
    fine = size <= s.residency.allowance
    pthread_mutex_unlock(&s.lock)
    return fine


cdef void begin_growth(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """A call wants so much more of the device. book.lock is held."""
    pthread_mutex_lock(&s.lock)
    gpu.growth = size
    gpu.admitted += size
    pthread_mutex_unlock(&s.lock)


cdef void drop_growth(Session *s, Gpu *gpu) noexcept nogil:
    """It does not get it. book.lock is held."""
    pthread_mutex_lock(&s.lock)
    gpu.admitted -= gpu.growth
    gpu.growth = 0
    pthread_mutex_unlock(&s.lock)


cdef bint may_be_there(Session *s, Gpu *gpu) noexcept nogil:
    """Whether what the session has been admitted may be on the device, and is its own then; the dispatcher waits until it
    may."""
    cdef bint fine
    pthread_mutex_lock(&s.lock)
    fine = gpu.admitted <= s.residency.allowance
    if fine:
        gpu.growth = 0
    pthread_mutex_unlock(&s.lock)
    return fine or wait_for_memory(s, gpu, True)


cdef uint64_t taken_on(Session *s, Gpu *gpu) noexcept nogil:
    """Bytes that the session has of the device, or is given back: without what a call waits for."""
    return gpu.admitted - gpu.growth


cdef bint await_memory(Session *s) noexcept nogil:
    """Between two calls. False: its memory is elsewhere, and there is something else to do first."""
    if not s.residency.absent:
        return True
    return wait_for_memory(s, gpu_at_place(s, 0), False)


cdef bint hung_up(Session *s) noexcept nogil:
    """Whether the guest is gone, and will not come back: nobody else notices while the dispatcher does not listen."""
    cdef pollfd poller
    if s.connection.resumable or s.connection.following:
        return False
    poller.fd = s.connection.fd
    poller.events = POLLRDHUP
    return poll(&poller, 1, 0) > 0 and poller.revents & (POLLRDHUP | POLLHUP | POLLERR) != 0


cdef bint wait_for_memory(Session *s, Gpu *gpu, bint in_call) noexcept nogil:
    """Until all that the session has been admitted is, or may be, on the device. Whether there is room is somebody else's
    to say: who has to wait in line, and for how long, is not known here."""
    cdef uint64_t wanted
    cdef bint fine = False
    cdef bint gone
    pthread_mutex_lock(&s.lock)
    wanted = gpu.admitted
    s.residency.wanted = wanted
    s.residency.refused = False
    s.residency.told = False
    s.residency.wished = True
    s.residency.in_call = in_call
    s.residency.waiting = True
    eventfd_write(s.sending.output.bell, 1)
    while not s.state.ending:
        fine = not s.residency.absent and wanted <= s.residency.allowance
        if fine or s.residency.refused:
            break
        if s.state.holding and not in_call:
            break
        if s.state.holding and s.residency.leaving:
            pthread_mutex_unlock(&s.lock)
            stand_still(s)
            pthread_mutex_lock(&s.lock)
            if s.residency.absent:
                s.residency.told = False        # with what it had, it needs more room now
                eventfd_write(s.sending.output.bell, 1)
            continue
        pthread_mutex_unlock(&s.lock)
        gone = hung_up(s)
        pthread_mutex_lock(&s.lock)
        if gone:
            break
        wait_briefly(&s.changed, &s.lock)
    s.residency.wished = False
    s.residency.waiting = False
    if fine:
        gpu.growth = 0
    gone = not fine and s.residency.absent and in_call and not s.state.ending
    pthread_mutex_unlock(&s.lock)
    if not fine and not s.state.holding and hung_up(s):
        end_session(s, LOST, b"connection lost")
    elif gone:      # a call must not go on without its memory
        end_session(s, DEVICE_FAILED, b"device error: its memory could not be brought back to the device")
    return fine


cdef bint take_wish(Session *s, bint *absent, uint64_t *wanted) noexcept nogil:
    """What the dispatcher waits for, once: bytes that may be on the device."""
    cdef bint found
    pthread_mutex_lock(&s.lock)
    found = s.residency.wished and not s.residency.told
    absent[0] = s.residency.absent
    wanted[0] = s.residency.wanted
    s.residency.told = s.residency.told or found
    pthread_mutex_unlock(&s.lock)
    return found


cdef bint awaits_room(Session *s) noexcept nogil:
    """Whether a call wants more room, and the monitor was told. Who waits for its own memory wants none."""
    cdef bint waits
    pthread_mutex_lock(&s.lock)
    waits = s.residency.wished and s.residency.told and not s.residency.absent
    pthread_mutex_unlock(&s.lock)
    return waits


cdef void ask_room(Session *s) noexcept nogil:
    """Another monitor must be told again."""
    pthread_mutex_lock(&s.lock)
    s.residency.told = False
    pthread_mutex_unlock(&s.lock)


cdef uint64_t limit_room(Session *s, uint64_t allowance) noexcept nogil:
    """As many bytes may be on each device from now on; never fewer than there are. Returns how many."""
    cdef uint64_t least = 0
    cdef int i
    pthread_mutex_lock(&s.lock)
    for i in range(s.device.count):
        least = max(least, taken_on(s, gpu_at_place(s, i)))
    if s.residency.absent:
        least -= s.window.used
    elif s.residency.wished and s.residency.wanted <= s.residency.allowance:
        least = max(least, s.residency.wanted)      # which it was told that it may take, and is about to
    s.residency.allowance = max(allowance, least)
    allowance = s.residency.allowance
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    return allowance


cdef void refuse_room(Session *s) noexcept nogil:
    """There is none for what the dispatcher waits for."""
    pthread_mutex_lock(&s.lock)
    s.residency.refused = not s.residency.absent
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef bint says_something(Session *s) noexcept nogil:
    """Whether the guest has said what nobody has looked at. The dispatcher stands still. A connection that is broken
    says nothing, if the session outlives it."""
    cdef pollfd poller
    cdef uint8_t first
    if unread_bytes(s) > 0:
        return True
    if s.connection.resumable:
        return recv(s.connection.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0
    poller.fd = s.connection.fd
    poller.events = POLLIN
    return poll(&poller, 1, 0) > 0


cdef bint is_quiet(Session *s, uint64_t *since) noexcept nogil:
    """Whether the session has nothing under way that the dispatcher knows of, and since when."""
    cdef bint quiet
    pthread_mutex_lock(&s.lock)
    since[0] = s.residency.quiet_since
    quiet = since[0] != 0 and s.waiters.tasks == 0
    pthread_mutex_unlock(&s.lock)
    return quiet


cdef const char *stays_why(Session *s) noexcept nogil:
    """Why the session's memory cannot leave the device; NULL: it can. This is the one place that knows."""
    if s.device.count > 1:
        return b"it has several devices"
    if s.arrival.restoring:
        return b"it is just arriving"
    if shares_memory(s):
        return b"it shares memory with other processes"
    return NULL


cdef int send_away(Session *s) noexcept nogil:
    """Gives the session's physical memory back to the device; where it was mapped is still known. The device is idle."""
    cdef uint64_t page = 0
    cdef uint64_t left = s.window.used
    cdef int status = cu.cuCtxSetCurrent(s.device.primary.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    pthread_mutex_lock(&s.lock)
    s.residency.absent = True
    pthread_mutex_unlock(&s.lock)
    status = drop_aside(s)
    status = unmap_shown(s) or status
    s.residency.unmapped = True
    while left > 0:
        page = next_mapping(s, page)
        status = release_mapping(s, page) or status
        left -= <uint64_t>s.window.pages[page] << PAGE_BITS
        page += s.window.pages[page]
    return status


cdef int bring_back(Session *s) noexcept nogil:
    """Physical memory behind all that is mapped, with the access that there was; what it holds is nobody's yet. If there is
    not enough of it, there is none."""
    cdef uint64_t page = 0
    cdef uint64_t left = s.window.used
    cdef int status = cu.cuCtxSetCurrent(s.device.primary.cu)
    while left > 0 and status == cu.CUDA_SUCCESS:
        page = next_mapping(s, page)
        if s.window.handles[page] == 0:
            status = renew_mapping(s, page)
        left -= <uint64_t>s.window.pages[page] << PAGE_BITS
        page += s.window.pages[page]
    if status == cu.CUDA_SUCCESS:
        status = show_again(s)
    if status == cu.CUDA_SUCCESS:
        s.residency.unmapped = False
        return status
    page = 0
    left = s.window.used
    while left > 0:
        page = next_mapping(s, page)
        if s.window.handles[page] != 0:
            release_mapping(s, page)
        left -= <uint64_t>s.window.pages[page] << PAGE_BITS
        page += s.window.pages[page]
    return status


cdef void settle_back(Session *s) noexcept nogil:
    """All is there again: the dispatcher may go on."""
    forget_written(s)
    pthread_mutex_lock(&s.lock)
    s.residency.absent = False
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef int copier(Session *s, int turn, cu.CUstream *found) noexcept nogil:
    """A stream of the primary context, which is current, that waits for nobody's."""
    cdef int status = cu.CUDA_SUCCESS
    if s.residency.copiers[turn] == NULL:
        status = cu.cuStreamCreate(&s.residency.copiers[turn], cu.CU_STREAM_NON_BLOCKING)
    found[0] = s.residency.copiers[turn]
    return status


cdef int copy_pages(Session *s, uint64_t address, uint8_t *host, size_t size, bint out) noexcept nogil:
    """Between the window and host memory, in parts side by side. The device is idle."""
    cdef cu.CUstream stream
    cdef size_t some
    cdef size_t at = 0
    cdef int turn = 0
    cdef int status = cu.cuCtxSetCurrent(s.device.primary.cu)
    while at < size and status == cu.CUDA_SUCCESS:
        some = min(size - at, <size_t>PART)
        status = copier(s, turn, &stream)
        if status == cu.CUDA_SUCCESS and out:
            status = cu.cuMemcpyDtoHAsync(host + at, address + at, some, stream)
        elif status == cu.CUDA_SUCCESS:
            status = cu.cuMemcpyHtoDAsync(address + at, host + at, some, stream)
        turn = (turn + 1) % COPIERS
        at += some
    for turn in range(COPIERS):
        if s.residency.copiers[turn] != NULL:
            status = cu.cuStreamSynchronize(s.residency.copiers[turn]) or status
    return status


cdef int read_pages(Session *s, uint64_t address, void *target, size_t size) noexcept nogil:
    """From the window. The dispatcher stands still, and the device is idle."""
    return copy_pages(s, address, <uint8_t *>target, size, True)


cdef int write_pages(Session *s, uint64_t address, const void *source, size_t size) noexcept nogil:
    return copy_pages(s, address, <uint8_t *>source, size, False)


cdef int clear_pages(Session *s, uint64_t address, size_t size) noexcept nogil:
    cdef cu.CUstream stream
    cdef int status = cu.cuCtxSetCurrent(s.device.primary.cu)
    status = status or copier(s, 0, &stream)
    status = status or cu.cuMemsetD8Async(address, 0, size, stream)
    return status or cu.cuStreamSynchronize(stream)


cdef int pin_copy(Session *s, void *data, size_t size) noexcept nogil:
    """Page-locks a copy, where the driver does that."""
    cdef int status = cu.cuCtxSetCurrent(s.device.primary.cu)
    status = status or cu.cuMemHostRegister(data, size, cu.CU_MEMHOSTREGISTER_PORTABLE)
    if status == cu.CUDA_SUCCESS:
        s.residency.pinned.push_back(<uint64_t>data)
    return status


cdef void unpin_copy(Session *s, void *data) noexcept nogil:
    cdef size_t i
    for i in range(s.residency.pinned.size()):
        if s.residency.pinned[0][i] == <uint64_t>data:
            cu.cuCtxSetCurrent(s.device.primary.cu)
            cu.cuMemHostUnregister(data)
            s.residency.pinned[0][i] = s.residency.pinned.back()
            s.residency.pinned.pop_back()
            return


cdef void end_copies(Session *s) noexcept nogil:
    """No copy is page-locked any more, nor a stream there for them. The first device's primary context is current."""
    cdef int turn
    for turn in range(COPIERS):
        if s.residency.copiers[turn] != NULL:
            cu.cuStreamDestroy(s.residency.copiers[turn])
            s.residency.copiers[turn] = NULL
    while not s.residency.pinned.empty():
        cu.cuMemHostUnregister(<void *>s.residency.pinned.back())
        s.residency.pinned.pop_back()


cdef bint is_blank(const uint8_t *data, size_t size) noexcept nogil:
    """Whether there are only zeroes: the first is, and each is as the one before."""
    return data[0] == 0 and memcmp(data, data + 1, size - 1) == 0
