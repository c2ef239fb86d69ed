# The window: which pages of it are backed, by what, and what a call may touch.


cdef inline bint in_window(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef uint64_t offset = address - s.window.base
    return address >= s.window.base and offset < s.window.size and size <= s.window.size - offset


cdef inline uint64_t page_of(Session *s, uint64_t address) noexcept nogil:
    """Where an address of the window lies."""
    return (address - s.window.base) >> PAGE_BITS


cdef inline uint64_t last_page(Session *s) noexcept nogil:
    return s.window.base + s.window.size - PAGE


cdef bint all_marked(const uint64_t *bitmap, uint64_t page, uint64_t last) noexcept nogil:
    while page <= last:
        if page & 63 == 0 and page + 63 <= last:
            if bitmap[page >> 6] != ~<uint64_t>0:
                return False
            page += 64
            continue
        if not (bitmap[page >> 6] >> (page & 63)) & 1:
            return False
        page += 1
    return True


cdef void mark(uint64_t *bitmap, uint64_t page, uint64_t pages, bint so) noexcept nogil:
    cdef uint64_t end = page + pages
    while page < end:
        if so:
            bitmap[page >> 6] |= <uint64_t>1 << (page & 63)
        else:
            bitmap[page >> 6] &= ~(<uint64_t>1 << (page & 63))
        page += 1


cdef bint is_mapped(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether every page of a range inside the window is backed."""
    return all_marked(s.window.mapped, page_of(s, address), page_of(s, address + size - 1))


cdef inline bint is_backed(Session *s, uint64_t page) noexcept nogil:
    """Whether a mapping begins at the page, and is not being taken away."""
    return s.window.pages[page] != 0 and (s.window.mapped[page >> 6] >> (page & 63)) & 1


cdef void mark_pages(Session *s, uint64_t address, uint64_t size, bint backed) noexcept nogil:
    pthread_mutex_lock(&s.window.lock)
    mark(s.window.mapped, page_of(s, address), size >> PAGE_BITS, backed)
    pthread_mutex_unlock(&s.window.lock)


cdef bint may_touch(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """A range of the session's own memory, or of a module variable that was handed out."""
    if size == 0:
        return True
    if in_window(s, address, size):
        return is_mapped(s, address, size)
    return is_handed_out(s, address, size)


cdef inline bint may_read(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    return may_touch(s, address, size)


cdef bint may_write(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Who moves the session wants to know what is being written."""
    if not may_touch(s, address, size):
        return False
    if size > 0 and in_window(s, address, size):
        note_written(s, address, size)
    if s.journal.tailing and size > 0 and in_window(s, address, size):
        mark(s.window.touched, page_of(s, address), page_of(s, address + size - 1) - page_of(s, address) + 1, True)
    return True


cdef bint unmapping(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether an unmap of any part of the range is under way. s.lock is held."""
    cdef Task *task = s.window.unmaps
    while task != NULL:
        if address < task.address + task.length and task.address < address + size:
            return True
        task = task.next_unmap
    return False


cdef bint is_there_still(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether every page of a range is mapped, or was freed behind work that is under way and may use it."""
    cdef uint64_t page, last
    cdef bint there = True
    if size == 0 or not in_window(s, address, size):
        return may_touch(s, address, size)
    page = page_of(s, address)
    last = page_of(s, address + size - 1)
    pthread_mutex_lock(&s.lock)
    while there and page <= last:
        there = all_marked(s.window.mapped, page, page) or unmapping(s, s.window.base + (page << PAGE_BITS), PAGE)
        page += 1
    pthread_mutex_unlock(&s.lock)
    return there


cdef enum:
    UNMAP_SECONDS = 600         # that a call waits for memory which goes behind work

cdef uint64_t NEVER = ~<uint64_t>0


cdef void wait_for_unmaps(Session *s, uint64_t address, uint64_t size, uint64_t deadline) noexcept nogil:
    """Until nothing there is being taken away. With a deadline also no longer than the program goes on by itself: of the
    end of a function that its stream waits for, the dispatcher would have to hear."""
    cdef bint waits = True
    while waits:
        pthread_mutex_lock(&s.lock)
        waits = unmapping(s, address, size) and not s.state.ending
        if waits:
            wait_briefly(&s.changed, &s.lock)
        pthread_mutex_unlock(&s.lock)
        if waits and hung_up(s):
            end_session(s, LOST, b"connection lost")
        if deadline != NEVER:
            waits = waits and not awaits_guest(s) and now() < deadline


cdef void await_room(Session *s) noexcept nogil:
    """For all that is being taken away, a while."""
    wait_for_unmaps(s, s.window.base, s.window.size, now() + <uint64_t>UNMAP_SECONDS * 1000000000)


cdef bint admit_behind_work(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """`admit`. What would be too much only beside memory that goes behind work waits for that, as natively."""
    if s.window.unmaps == NULL or size > s.window.quota:
        return admit(s, gpu, size)
    if not is_allowed(s, gf_plus(gpu.admitted, size)):
        await_room(s)
    if admit(s, gpu, size):
        return True
    await_room(s)
    return admit(s, gpu, size)


cdef bint on_pages(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    return size > 0 and in_window(s, address, size) and ((address | size) & (PAGE - 1)) == 0


cdef inline Gpu *gpu_at(Session *s, uint64_t page) noexcept nogil:
    """Whose memory the mapping is that begins at the page."""
    return gpu_at_place(s, s.window.devices[page])


cdef int allow_access(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    """A mapped range becomes readable and writable by its device, and by those that may reach what that has."""
    cdef cu.CUmemAccessDesc access[GF_DEVICES_MAX]
    cdef int count = 0
    cdef int i
    memset(access, 0, sizeof(access))
    for i in range(s.device.count):
        if gpu_at_place(s, i) == gpu or gpu.reached_by >> i & 1:
            access[count].location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
            access[count].location.id = gpu_at_place(s, i).cu
            access[count].flags = cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            count += 1
    return cu.cuMemSetAccess(address, size, access, count)


cdef int set_access(Gpu *gpu, uint64_t address, uint64_t size, bint allowed) noexcept nogil:
    """Whole mappings, whosever memory they are, may be read and written by this device, or not be reached at all."""
    cdef cu.CUmemAccessDesc access
    memset(&access, 0, sizeof(access))
    access.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = gpu.cu
    if allowed:
        access.flags = cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return cu.cuMemSetAccess(address, size, &access, 1)


cdef int open_memory(Session *s, Gpu *owner, Gpu *gpu) noexcept nogil:
    """What is mapped of one device's memory becomes another's to reach, or is so no more."""
    cdef uint64_t page = 0
    cdef uint64_t left = s.window.used
    cdef uint64_t bytes
    cdef int status = cu.CUDA_SUCCESS
    while left > 0 and status == cu.CUDA_SUCCESS:
        if not is_backed(s, page):
            page += 1
            continue
        bytes = <uint64_t>s.window.pages[page] << PAGE_BITS
        if gpu_at(s, page) == owner:
            status = set_access(gpu, s.window.base + (page << PAGE_BITS), bytes, owner.reached_by >> gpu.place & 1)
        page += s.window.pages[page]
        left -= bytes
    return status


cdef int make_physical(Gpu *gpu, uint64_t size, cu.CUmemGenericAllocationHandle *handle) noexcept nogil:
    """Physical memory of a device, which others may be given where it can do that."""
    cdef cu.CUmemAllocationProp properties
    memset(&properties, 0, sizeof(properties))
    properties.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = gpu.cu
    if gpu.shareable:
        properties.requestedHandleTypes = cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return cu.cuMemCreate(handle, size, &properties, 0)


cdef int back(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    """Physical memory of a device behind a range, readable and writable by it. No clearing yet."""
    cdef cu.CUmemGenericAllocationHandle handle = 0
    cdef int status = make_physical(gpu, size, &handle)
    if status == cu.CUDA_ERROR_OUT_OF_MEMORY and (s.window.unmaps != NULL or s.move.aside.unwanted):
        await_room(s)
        drop_unwanted(s)
        status = make_physical(gpu, size, &handle)
    if status != cu.CUDA_SUCCESS:
        return status
    status = place(s, gpu, address, size, handle)
    if status != cu.CUDA_SUCCESS:
        cu.cuMemRelease(handle)
    return status


cdef void reach(Session *s, uint64_t end) noexcept nogil:
    """Something is mapped in front of that page: whoever looks at all that is mapped need not look behind it."""
    s.window.reached = max(s.window.reached, end)


cdef int place(Session *s, Gpu *gpu, uint64_t address, uint64_t size, cu.CUmemGenericAllocationHandle handle) noexcept nogil:
    """This physical memory behind a range; takes the handle, if it succeeds."""
    cdef uint64_t page = page_of(s, address)
    cdef int status = cu.cuMemMap(address, size, 0, handle, 0)
    if status == cu.CUDA_SUCCESS:
        status = allow_access(s, gpu, address, size)
        if status == cu.CUDA_SUCCESS:
            reach(s, page + (size >> PAGE_BITS))
            s.window.pages[page] = <uint32_t>(size >> PAGE_BITS)
            s.window.handles[page] = handle
            s.window.devices[page] = <uint8_t>gpu.place
            s.window.serial += 1
            s.window.serials[page] = s.window.serial
            mark_pages(s, address, size, True)
            note_written(s, address, size)
            s.window.used += size
            return status
        cu.cuMemUnmap(address, size)
    return status


cdef int unback(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Ends all mappings in a range that consists of whole ones. Waiters call it too: it touches no bitmap."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    cdef uint64_t length
    cdef int status = cu.CUDA_SUCCESS
    while page < end:
        length = end_alias(s, page, &status)
        if length > 0:
            page += length
            continue
        length = s.window.pages[page]
        if s.window.handles[page] != 0:     # else it has left the device
            status = status or cu.cuMemUnmap(s.window.base + (page << PAGE_BITS), length << PAGE_BITS)
            status = status or cu.cuMemRelease(s.window.handles[page])
        s.window.pages[page] = 0
        s.window.handles[page] = 0
        page += length
    return status


cdef uint64_t next_mapping(Session *s, uint64_t page) noexcept nogil:
    """The first page from there on where a mapping begins. There is one."""
    while not is_backed(s, page):
        page += 1
    return page


cdef int release_mapping(Session *s, uint64_t page) noexcept nogil:
    """The physical memory of the mapping that begins there is given back, and nothing else forgotten."""
    cdef int status = cu.cuMemUnmap(s.window.base + (page << PAGE_BITS), <uint64_t>s.window.pages[page] << PAGE_BITS)
    status = cu.cuMemRelease(s.window.handles[page]) or status
    s.window.handles[page] = 0
    return status


cdef int renew_mapping(Session *s, uint64_t page) noexcept nogil:
    """Other physical memory behind a mapping that has none, with the access that it had."""
    cdef uint64_t address = s.window.base + (page << PAGE_BITS)
    cdef uint64_t size = <uint64_t>s.window.pages[page] << PAGE_BITS
    cdef cu.CUmemGenericAllocationHandle handle = 0
    cdef int status = make_physical(gpu_at(s, page), size, &handle)
    if status != cu.CUDA_SUCCESS:
        return status
    status = cu.cuMemMap(address, size, 0, handle, 0)
    if status == cu.CUDA_SUCCESS:
        status = allow_access(s, gpu_at(s, page), address, size)
        if status == cu.CUDA_SUCCESS:
            s.window.handles[page] = handle
            s.window.serial += 1
            s.window.serials[page] = s.window.serial
            return status
        cu.cuMemUnmap(address, size)
    cu.cuMemRelease(handle)
    return status


cdef bint whole_mappings(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    while page < end:
        if s.window.pages[page] == 0 or not is_mapped(s, s.window.base + (page << PAGE_BITS), PAGE):
            return False
        page += s.window.pages[page]
    return page == end


cdef int check_unmapped(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether something may be mapped there."""
    cdef uint64_t page
    if not on_pages(s, address, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    page = page_of(s, address)
    while page < (address - s.window.base + size) >> PAGE_BITS:
        if (s.window.mapped[page >> 6] >> (page & 63)) & 1 or has_alias(s, page):
            return cu.CUDA_ERROR_ALREADY_MAPPED
        page += 1
    return cu.CUDA_SUCCESS


cdef bint is_of_one_device(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether all mappings in a range of whole mappings have their memory on one device."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    cdef Gpu *gpu = gpu_at(s, page)
    while s.device.count > 1 and page < end:
        if gpu_at(s, page) != gpu:
            return False
        page += s.window.pages[page]
    return True


cdef int map_memory(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    cdef int status = check_unmapped(s, address, size)
    if status != cu.CUDA_SUCCESS:
        return status
    if not admit_behind_work(s, gpu, size):
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    if s.window.unmaps != NULL:
        wait_for_unmaps(s, address, size, NEVER)
    status = enter(s, gpu.primary)
    status = status or back(s, gpu, address, size)
    if status != cu.CUDA_SUCCESS:
        discharge(s, gpu, size)
        return status
    status = cu.cuMemsetD8Async(address, 0, size, gpu.order.cu)
    if status == cu.CUDA_SUCCESS:
        return publish(s, gpu)
    # What was not cleared must not be reached.
    mark_pages(s, address, size, False)
    s.window.used -= size
    unback(s, address, size)
    discharge(s, gpu, size)
    return status


cdef int unmap_memory(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef Gpu *gpu
    if not on_pages(s, address, size) or not whole_mappings(s, address, size) or aliased_within(s, address, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    if not is_of_one_device(s, address, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    gpu = gpu_at(s, page_of(s, address))
    mark_pages(s, address, size, False)
    note_written(s, address, size)      # its copy is nobody's any more
    s.window.used -= size
    return unmap_behind_work(s, gpu, address, size)


cdef int unmap_behind_work(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    """Ends what is mapped there, once nothing on any device can use it any more: nobody may name it from now on."""
    cdef Stream *stream = s.streams.first
    cdef Task *task
    cdef bint busy
    cdef int i
    cdef int status
    while stream != NULL:
        if stream.active:
            enter(s, stream.base.context)
            if cu.cuStreamQuery(stream.cu) == cu.CUDA_SUCCESS:
                stream.active = False
            else:
                join(s, stream, gpu.reclaim)
        stream = stream.next
    for i in range(s.device.count):     # streams that are gone; and the memory may still be being cleared
        enter(s, gpu_at_place(s, i).primary)
        if cu.cuStreamQuery(gpu_at_place(s, i).order.cu) != cu.CUDA_SUCCESS:
            join(s, gpu_at_place(s, i).order, gpu.reclaim)
        if gpu_at_place(s, i) != gpu and cu.cuStreamQuery(gpu_at_place(s, i).reclaim.cu) != cu.CUDA_SUCCESS:
            join(s, gpu_at_place(s, i).reclaim, gpu.reclaim)
    status = enter(s, gpu.primary)
    busy = cu.cuStreamQuery(gpu.reclaim.cu) == cu.CUDA_ERROR_NOT_READY
    if not busy:
        drop_unwanted(s)
        return status or end_mappings(s, gpu, address, size)
    task = new_task(TASK_UNMAP, NULL, gpu.primary)
    task.address = address
    task.length = size
    task.event = take_event(s, gpu.primary)
    cu.cuEventRecord(task.event, gpu.reclaim.cu)
    pthread_mutex_lock(&s.lock)
    task.next_unmap = s.window.unmaps
    s.window.unmaps = task
    pthread_mutex_unlock(&s.lock)
    submit(s, &s.window.lane, task)
    return status


cdef int end_mappings(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    """`unback`; from here on the memory counts no more. What aliases show counts where it is."""
    cdef uint64_t own = 0 if ends_alias(s, page_of(s, address)) else size - leave_extents(s, gpu, address, size)
    cdef int status = unback(s, address, size)
    discharge(s, gpu, own)
    return status


cdef void run_unmap(Session *s, Task *task) noexcept nogil:
    cdef Task **link
    cu.cuEventSynchronize(task.event)
    cdef int status = end_mappings(s, gpu_at(s, page_of(s, task.address)), task.address, task.length)
    if status != cu.CUDA_SUCCESS:
        latch(s, GF_OP_sessionMemUnmap, status)
    pthread_mutex_lock(&s.lock)
    link = &s.window.unmaps
    while link[0] != task:
        link = &link[0].next_unmap
    link[0] = task.next_unmap
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)


cdef int on_sessionMemoryReturned(Session *s, Frame *f, gf_req_sessionMemoryReturned *q) noexcept nogil:
    """Behind all that is being taken away. NOT_READY: work holds it up that is not to be waited for."""
    cdef bint any
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    any = s.window.unmaps != NULL
    if any and not q.behind_work:
        status = cu.cuEventQuery(s.window.unmaps.event)     # of the last one
    pthread_mutex_unlock(&s.lock)
    if not any:
        return cu.CUDA_SUCCESS
    if status == cu.CUDA_ERROR_NOT_READY and is_held_up(s):
        return status
    submit(s, &s.window.lane, new_task(TASK_RETURNED, f, s.device.primary))
    return DEFERRED


cdef int unmap_all(Session *s) noexcept nogil:
    cdef uint64_t page = 0
    cdef int status = enter(s, s.device.primary)
    cdef uint64_t left = s.window.used
    status = status or unalias_all(s)
    while left > 0 and page < s.window.reached:
        if s.window.pages[page] == 0:
            page += 1
            continue
        left -= <uint64_t>s.window.pages[page] << PAGE_BITS
        status = status or unback(s, s.window.base + (page << PAGE_BITS), <uint64_t>s.window.pages[page] << PAGE_BITS)
    madvise(s.window.mapped, s.window.size >> (PAGE_BITS + 3), MADV_DONTNEED)
    s.window.used = 0
    return status


cdef void note_touched(Session *s, const uint8_t *params, size_t size) noexcept nogil:
    """Launch parameters that look like addresses say what is being written, maybe."""
    cdef uint64_t word, page
    cdef size_t at = 0
    while at + sizeof(word) <= size:
        memcpy(&word, params + at, sizeof(word))
        if word >= s.window.base and word - s.window.base < s.window.size:
            page = page_of(s, word)
            s.window.touched[page >> 6] |= <uint64_t>1 << (page & 63)
        at += sizeof(word)


cdef int reserve_window(Session *s) noexcept nogil:
    """The same range in every API server, so that an address means the same everywhere; smaller only where it must
    be."""
    cdef cu.CUdeviceptr got = 0
    cdef uint64_t size = <uint64_t>1 << 43
    cdef int status = cu.CUDA_SUCCESS
    while size >= <uint64_t>1 << 34:
        status = cu.cuMemAddressReserve(&got, size, PAGE, <uint64_t>0x200000000000, 0)
        if status == cu.CUDA_SUCCESS and got & (PAGE - 1) == 0:
            s.window.base = got
            s.window.size = size
            s.window.pages = <uint32_t *>reserve((size >> PAGE_BITS) * sizeof(uint32_t))
            s.window.handles = <uint64_t *>reserve((size >> PAGE_BITS) * sizeof(uint64_t))
            s.window.devices = <uint8_t *>reserve(size >> PAGE_BITS)
            s.window.serials = <uint64_t *>reserve((size >> PAGE_BITS) * sizeof(uint64_t))
            s.window.mapped = <uint64_t *>reserve(size >> (PAGE_BITS + 3))
            s.window.touched = <uint64_t *>reserve(size >> (PAGE_BITS + 3))
            return status
        if status == cu.CUDA_SUCCESS:
            cu.cuMemAddressFree(got, size)
            status = cu.CUDA_ERROR_INVALID_VALUE
        size >>= 1
    return status


cdef void begin_window(Session *s, uint64_t quota) noexcept nogil:
    s.window.quota = quota
