# Physical memory a second time, at the same offset of another range: of a session that is about to move its own, so that the
# guest may unmap what is being read; of one that comes from another server that server's. Only one thread at a time comes
# here: whoever moves the session away, under s.move_lock, or the dispatcher of one that is being restored.


cdef int prepare_aside(Session *s) noexcept nogil:
    """The range is reserved when it is first wanted, and kept."""
    cdef uint64_t pages = s.window_size >> PAGE_BITS
    cdef cu.CUdeviceptr got = 0
    cdef int status
    if s.aside != 0:
        return cu.CUDA_SUCCESS
    if s.aside_pages == NULL:
        s.aside_pages = <uint32_t *>reserve(pages * sizeof(uint32_t))
        s.aside_handles = <uint64_t *>reserve(pages * sizeof(uint64_t))
        s.aside_serials = <uint64_t *>reserve(pages * sizeof(uint64_t))
        s.aside_mapped = <uint64_t *>reserve(pages >> 3)
    if s.aside_pages == NULL or s.aside_handles == NULL or s.aside_serials == NULL or s.aside_mapped == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    status = cu.cuMemAddressReserve(&got, s.window_size, PAGE, 0, 0)
    if status == cu.CUDA_SUCCESS:
        s.aside = got
    return status


cdef inline uint64_t aside_of(Session *s, uint64_t address) noexcept nogil:
    return s.aside + (address - s.window)


cdef int map_aside(Session *s, uint64_t page, uint64_t pages, cu.CUmemGenericAllocationHandle handle) noexcept nogil:
    """Takes the handle, if it succeeds."""
    cdef uint64_t address = s.aside + (page << PAGE_BITS)
    cdef int status = cu.cuMemMap(address, pages << PAGE_BITS, 0, handle, 0)
    if status != cu.CUDA_SUCCESS:
        return status
    status = allow_access(s, address, pages << PAGE_BITS)
    if status != cu.CUDA_SUCCESS:
        cu.cuMemUnmap(address, pages << PAGE_BITS)
        return status
    s.aside_pages[page] = <uint32_t>pages
    s.aside_handles[page] = handle
    mark(s.aside_mapped, page, pages, True)
    return status


cdef int unmap_aside(Session *s, uint64_t page) noexcept nogil:
    """Of the mapping that begins there."""
    cdef uint64_t pages = s.aside_pages[page]
    cdef int status = cu.cuMemUnmap(s.aside + (page << PAGE_BITS), pages << PAGE_BITS)
    status = cu.cuMemRelease(s.aside_handles[page]) or status
    mark(s.aside_mapped, page, pages, False)
    s.aside_pages[page] = 0
    return status


cdef int clear_aside(Session *s, uint64_t page, uint64_t pages) noexcept nogil:
    """Ends every mapping that touches the range."""
    cdef uint64_t end = page + pages
    cdef uint64_t start
    cdef int status = cu.CUDA_SUCCESS
    while page < end and status == cu.CUDA_SUCCESS:
        if (s.aside_mapped[page >> 6] >> (page & 63)) & 1:
            start = page
            while s.aside_pages[start] == 0:
                start -= 1
            page = start + s.aside_pages[start]
            status = unmap_aside(s, start)
        else:
            page += 1
    return status


cdef int drop_aside(Session *s) noexcept nogil:
    cdef uint64_t page
    cdef int status = cu.CUDA_SUCCESS
    s.aside_unwanted = False
    if s.aside == 0:
        return status
    for page in range(s.window_size >> PAGE_BITS):
        if s.aside_pages[page] != 0:
            status = unmap_aside(s, page) or status
    return status


cdef int retain(Session *s, uint64_t page, uint32_t *pages, uint64_t *serial,
                cu.CUmemGenericAllocationHandle *handle) noexcept nogil:
    """The physical memory of a mapping, against its end on a waiter; no pages: it has ended."""
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.map_lock)
    pages[0] = s.mapping_pages[page] if is_backed(s, page) else 0
    serial[0] = s.mapping_serials[page]
    if pages[0] != 0:
        status = cu.cuMemRetainAllocationHandle(handle, <void *>(s.window + (page << PAGE_BITS)))
    pthread_mutex_unlock(&s.map_lock)
    return status


cdef int alias_mappings(Session *s) noexcept nogil:
    """Maps aside what is mapped now, and only that; what was there before stays if it is the same."""
    cdef uint64_t page
    cdef uint64_t serial
    cdef uint32_t pages = 0
    cdef cu.CUmemGenericAllocationHandle handle
    cdef int status = prepare_aside(s)
    if status != cu.CUDA_SUCCESS:
        return status
    s.aside_unwanted = False
    for page in range(s.window_size >> PAGE_BITS):
        if s.aside_pages[page] != 0 and (not is_backed(s, page) or s.mapping_serials[page] != s.aside_serials[page]):
            status = status or unmap_aside(s, page)
    for page in range(s.window_size >> PAGE_BITS):
        if status == cu.CUDA_SUCCESS and s.aside_pages[page] == 0 and is_backed(s, page):
            status = retain(s, page, &pages, &serial, &handle)
            if status != cu.CUDA_SUCCESS or pages == 0:
                continue
            status = map_aside(s, page, pages, handle)
            if status == cu.CUDA_SUCCESS:
                s.aside_serials[page] = serial
            else:
                cu.cuMemRelease(handle)
    return status


cdef bint is_aside(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    return s.aside != 0 and size > 0 and in_window(s, address, size) \
        and all_marked(s.aside_mapped, (address - s.window) >> PAGE_BITS, (address - s.window + size - 1) >> PAGE_BITS)


cdef int descriptor(Session *s, uint64_t address, int *fd) noexcept nogil:
    """Of the physical memory of a mapping that is there aside."""
    cdef uint64_t page = (address - s.window) >> PAGE_BITS
    if not is_aside(s, address, PAGE) or address & (PAGE - 1) or s.aside_pages[page] == 0:
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.cuMemExportToShareableHandle(fd, s.aside_handles[page], cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
