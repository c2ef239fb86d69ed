# Physical memory mapped a second time, at the same offset of another range. Of a session that moves away it is the
# session's own, so that the guest may unmap what is being read; of one that arrives it is the other server's. Only one
# thread at a time comes here: whoever moves the session away, under s.move.lock, or the dispatcher of one that is being restored.


cdef int prepare_aside(Session *s) noexcept nogil:
    """The range is reserved when it is first wanted, and kept."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t pages = s.window.size >> PAGE_BITS
    cdef cu.CUdeviceptr got = 0
    cdef int status
    if aside.base != 0:
        return cu.CUDA_SUCCESS
    if aside.pages == NULL:
        aside.pages = <uint32_t *>reserve(pages * sizeof(uint32_t))
        aside.handles = <uint64_t *>reserve(pages * sizeof(uint64_t))
        aside.serials = <uint64_t *>reserve(pages * sizeof(uint64_t))
        aside.mapped = <uint64_t *>reserve(pages >> 3)
    if aside.pages == NULL or aside.handles == NULL or aside.serials == NULL or aside.mapped == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    status = cu.cuMemAddressReserve(&got, s.window.size, PAGE, 0, 0)
    if status == cu.CUDA_SUCCESS:
        aside.base = got
    return status


cdef inline uint64_t aside_of(Session *s, uint64_t address) noexcept nogil:
    return s.move.aside.base + (address - s.window.base)


cdef int map_aside(Session *s, uint64_t page, uint64_t pages, cu.CUmemGenericAllocationHandle handle) noexcept nogil:
    """Takes the handle, if it succeeds."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t address = aside.base + (page << PAGE_BITS)
    cdef int status = cu.cuMemMap(address, pages << PAGE_BITS, 0, handle, 0)
    if status != cu.CUDA_SUCCESS:
        return status
    status = allow_access(s, gpu_at(s, page), address, pages << PAGE_BITS)     # of the device that has it in the window
    if status != cu.CUDA_SUCCESS:
        cu.cuMemUnmap(address, pages << PAGE_BITS)
        return status
    reach(s, page + pages)
    aside.pages[page] = <uint32_t>pages
    aside.handles[page] = handle
    mark(aside.mapped, page, pages, True)
    return status


cdef int unmap_aside(Session *s, uint64_t page) noexcept nogil:
    """Of the mapping that begins there."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t pages = aside.pages[page]
    cdef int status = cu.cuMemUnmap(aside.base + (page << PAGE_BITS), pages << PAGE_BITS)
    status = cu.cuMemRelease(aside.handles[page]) or status
    mark(aside.mapped, page, pages, False)
    aside.pages[page] = 0
    return status


cdef int clear_aside(Session *s, uint64_t page, uint64_t pages) noexcept nogil:
    """Ends every mapping that touches the range."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t end = page + pages
    cdef uint64_t start
    cdef int status = cu.CUDA_SUCCESS
    while page < end and status == cu.CUDA_SUCCESS:
        if (aside.mapped[page >> 6] >> (page & 63)) & 1:
            start = page
            while aside.pages[start] == 0:
                start -= 1
            page = start + aside.pages[start]
            status = unmap_aside(s, start)
        else:
            page += 1
    return status


cdef int drop_aside(Session *s) noexcept nogil:
    cdef Aside *aside = &s.move.aside
    cdef uint64_t page
    cdef int status = cu.CUDA_SUCCESS
    aside.unwanted = False
    if aside.base == 0:
        return status
    for page in range(s.window.reached):
        if aside.pages[page] != 0:
            status = unmap_aside(s, page) or status
    return status


cdef int retain(Session *s, uint64_t page, uint32_t *pages, uint64_t *serial,
                cu.CUmemGenericAllocationHandle *handle) noexcept nogil:
    """The physical memory of a mapping, against its end on a waiter; no pages: it has ended."""
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.window.lock)
    pages[0] = s.window.pages[page] if is_backed(s, page) else 0
    serial[0] = s.window.serials[page]
    if pages[0] != 0:
        status = cu.cuMemRetainAllocationHandle(handle, <void *>(s.window.base + (page << PAGE_BITS)))
    pthread_mutex_unlock(&s.window.lock)
    return status


cdef int alias_mappings(Session *s) noexcept nogil:
    """Maps aside what this session has mapped of its own now, and only that; what was there before stays if it is the same."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t page
    cdef uint64_t serial
    cdef uint32_t pages = 0
    cdef cu.CUmemGenericAllocationHandle handle
    cdef int status = prepare_aside(s)
    if status != cu.CUDA_SUCCESS:
        return status
    aside.unwanted = False
    for page in range(s.window.reached):
        if aside.pages[page] != 0 and (not is_own(s, page) or s.window.serials[page] != aside.serials[page]):
            status = status or unmap_aside(s, page)
    for page in range(s.window.reached):
        if status == cu.CUDA_SUCCESS and aside.pages[page] == 0 and is_own(s, page):
            status = retain(s, page, &pages, &serial, &handle)
            if status != cu.CUDA_SUCCESS or pages == 0:
                continue
            status = map_aside(s, page, pages, handle)
            if status == cu.CUDA_SUCCESS:
                aside.serials[page] = serial
            else:
                cu.cuMemRelease(handle)
    return status


cdef bint is_aside(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef Aside *aside = &s.move.aside
    return aside.base != 0 and size > 0 and in_window(s, address, size) \
        and all_marked(aside.mapped, page_of(s, address), page_of(s, address + size - 1))


cdef int descriptor(Session *s, uint64_t address, int *fd) noexcept nogil:
    """Of the physical memory of a mapping that is there aside."""
    cdef Aside *aside = &s.move.aside
    cdef uint64_t page = page_of(s, address)
    if not is_aside(s, address, PAGE) or address & (PAGE - 1) or aside.pages[page] == 0:
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.cuMemExportToShareableHandle(fd, aside.handles[page], cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)


cdef Gpu *gpu_aside(Session *s, uint64_t page) noexcept nogil:
    """Whose memory the page shows that lies aside."""
    while s.move.aside.pages[page] == 0:
        page -= 1
    return gpu_at(s, page)


cdef int read_by(Session *s, Gpu *gpu, uint64_t address, void *target, size_t size) noexcept nogil:
    """By a stream of the device that waits for nobody's."""
    cdef int status = cu.cuCtxSetCurrent(gpu.primary.cu)
    status = status or prepare_side_stream(s, gpu)
    status = status or cu.cuMemcpyDtoHAsync(target, address, size, s.move.streams[gpu.place])
    return status or cu.cuStreamSynchronize(s.move.streams[gpu.place])


cdef int read_aside(Session *s, uint64_t address, void *target, size_t size) noexcept nogil:
    """Of a range that lies aside: each device reads its own."""
    cdef uint8_t *to = <uint8_t *>target
    cdef uint64_t some, end
    cdef Gpu *gpu
    cdef int status = cu.CUDA_SUCCESS
    while size > 0 and status == cu.CUDA_SUCCESS:
        gpu = gpu_aside(s, page_of(s, address))
        end = address + size
        some = size
        if s.device.count > 1:
            some = min(<uint64_t>size, PAGE - (address & (PAGE - 1)))
            while some < size and gpu_aside(s, page_of(s, address + some)) == gpu:
                some = min(<uint64_t>size, some + PAGE)
        status = read_by(s, gpu, aside_of(s, address), to, some)
        address += some
        to += some
        size -= some
    return status


cdef int drop_aside_idle(Session *s) noexcept nogil:
    """At once if the device has nothing to do; else when somebody needs the memory, or the session is over."""
    if stream_state(s) == cu.CUDA_SUCCESS:
        return drop_aside(s)
    s.move.aside.unwanted = True
    return cu.CUDA_SUCCESS


cdef void drop_unwanted(Session *s) noexcept nogil:
    """The dispatcher, which may wait for the device here. Whoever moves the session wants it after
    all, or comes to it himself."""
    cdef Aside *aside = &s.move.aside
    if aside.unwanted and pthread_mutex_trylock(&s.move.lock) == 0:
        if aside.unwanted:
            drop_aside(s)
        pthread_mutex_unlock(&s.move.lock)
