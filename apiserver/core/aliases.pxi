# The program's own virtual memory. Its physical memory is mapped at home like all memory of the session, which is what is
# counted and moved; an alias maps it again, at a page that the program chose, with the access that it asked for.


cdef int prepare_aliases(Session *s) noexcept nogil:
    cdef Aliases *a = &s.aliases
    cdef uint64_t pages = s.window.size >> PAGE_BITS
    if a.pages == NULL:
        a.homes = <uint32_t *>reserve(pages * sizeof(uint32_t))
        a.access = <uint64_t *>reserve(pages * sizeof(uint64_t))
        a.shown = <uint32_t *>reserve(pages * sizeof(uint32_t))
        a.taken = <uint64_t *>reserve(pages >> 3)
        a.pages = <uint32_t *>reserve(pages * sizeof(uint32_t))
    if a.homes == NULL or a.access == NULL or a.shown == NULL or a.taken == NULL or a.pages == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    return cu.CUDA_SUCCESS


cdef bint has_alias(Session *s, uint64_t page) noexcept nogil:
    return s.aliases.count > 0 and (s.aliases.taken[page >> 6] >> (page & 63)) & 1


cdef Gpu *alias_gpu(Session *s, uint64_t page) noexcept nogil:
    """Whose memory the alias shows that begins there."""
    return gpu_at(s, s.aliases.homes[page])


cdef uint64_t alias_at(Session *s, uint64_t page) noexcept nogil:
    """Pages of the alias that begins there; 0: none does."""
    return s.aliases.pages[page] if has_alias(s, page) else 0


cdef bint aliased_within(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether any of the memory that is at home there is shown elsewhere."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    while s.aliases.count > 0 and page < end:
        if s.aliases.shown[page] > 0:
            return True
        page += 1
    return False


cdef bint is_home(Session *s, uint64_t page, uint64_t pages) noexcept nogil:
    """Whether mappings begin at the page that are together at least as long."""
    cdef uint64_t limit = s.window.size >> PAGE_BITS
    cdef uint64_t end = page + pages
    while page < end:
        if page >= limit or not is_backed(s, page):
            return False
        page += s.window.pages[page]
    return True


cdef int show(Session *s, uint64_t page, uint64_t home, uint64_t pages) noexcept nogil:
    """One mapping's memory, or its beginning, at another page."""
    cdef uint64_t address = s.window.base + (page << PAGE_BITS)
    cdef int status = cu.cuMemMap(address, pages << PAGE_BITS, 0, s.window.handles[home], 0)
    if status == cu.CUDA_SUCCESS:
        reach(s, page + pages)
        s.aliases.pages[page] = <uint32_t>pages
        s.aliases.homes[page] = <uint32_t>home
        s.aliases.access[page] = 0
        s.aliases.shown[home] += 1
        s.aliases.count += 1
        mark(s.aliases.taken, page, pages, True)
    return status


cdef void hide(Session *s, uint64_t page) noexcept nogil:
    """Nothing may be reached by way of the alias any more; end_alias unmaps it."""
    s.aliases.shown[s.aliases.homes[page]] -= 1
    s.aliases.count -= 1
    mark(s.aliases.taken, page, s.aliases.pages[page], False)
    mark_pages(s, s.window.base + (page << PAGE_BITS), <uint64_t>s.aliases.pages[page] << PAGE_BITS, False)


cdef bint ends_alias(Session *s, uint64_t page) noexcept nogil:
    """Whether what begins there is an alias, which may be hidden by now."""
    return s.aliases.pages != NULL and s.aliases.pages[page] > 0


cdef uint64_t end_alias(Session *s, uint64_t page, int *status) noexcept nogil:
    """Unmaps the alias that begins there and was hidden; its length, 0: there is none. Waiters call it too."""
    cdef uint64_t pages = s.aliases.pages[page] if ends_alias(s, page) else 0
    if pages > 0:
        if is_physical(s):
            status[0] = status[0] or cu.cuMemUnmap(s.window.base + (page << PAGE_BITS), pages << PAGE_BITS)
        s.aliases.pages[page] = 0
    return pages


cdef int alias_memory(Session *s, uint64_t address, uint64_t size, uint64_t home) noexcept nogil:
    cdef uint64_t page, from_page, pages, end, length
    cdef int status = prepare_aliases(s)
    if status != cu.CUDA_SUCCESS:
        return status
    if not on_pages(s, address, size) or not on_pages(s, home, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    page = page_of(s, address)
    from_page = page_of(s, home)
    end = page + (size >> PAGE_BITS)
    if not is_home(s, from_page, size >> PAGE_BITS):
        return cu.CUDA_ERROR_INVALID_VALUE
    for pages in range(page, end):
        if has_alias(s, pages) or (s.window.mapped[pages >> 6] >> (pages & 63)) & 1:
            return cu.CUDA_ERROR_ALREADY_MAPPED
    wait_for_unmaps(s, address, size, NEVER)
    status = enter(s, s.device.primary)
    while status == cu.CUDA_SUCCESS and page < end:
        length = min(<uint64_t>s.window.pages[from_page], end - page)
        status = show(s, page, from_page, length)
        if status == cu.CUDA_SUCCESS:
            page += length
            from_page += length
    if status != cu.CUDA_SUCCESS and page > page_of(s, address):
        end_aliases(s, address, (page << PAGE_BITS) + s.window.base - address)
    return status


cdef bint whole_aliases(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef uint64_t page, end
    if not on_pages(s, address, size):
        return False
    page = page_of(s, address)
    end = page + (size >> PAGE_BITS)
    while page < end:
        if alias_at(s, page) == 0:
            return False
        page += alias_at(s, page)
    return page == end


cdef void mark_homes(Session *s, uint64_t *bitmap, uint64_t page, uint64_t pages) noexcept nogil:
    """Marks, for each of these pages that an alias shows, the page where its memory is at home. Done at once, because the
    alias may be gone when somebody looks at the bitmap."""
    cdef uint64_t end = page + pages
    cdef uint64_t start = page
    while has_alias(s, start) and s.aliases.pages[start] == 0:
        start -= 1
    while page < end and s.aliases.count > 0:
        if has_alias(s, page):
            if s.aliases.pages[page] > 0:
                start = page
            mark(bitmap, s.aliases.homes[start] + (page - start), 1, True)
        page += 1


cdef int permit(Session *s, Gpu *gpu, uint64_t address, uint64_t size, uint32_t access) noexcept nogil:
    """What a device may do with whole aliases; NULL: the one whose memory each shows."""
    cdef Gpu *who
    cdef cu.CUmemAccessDesc wanted
    cdef uint64_t page, end, length, at
    cdef int status = cu.CUDA_SUCCESS
    if access != cu.CU_MEM_ACCESS_FLAGS_PROT_NONE and access != cu.CU_MEM_ACCESS_FLAGS_PROT_READ \
            and access != cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        return cu.CUDA_ERROR_INVALID_VALUE
    if not whole_aliases(s, address, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    memset(&wanted, 0, sizeof(wanted))
    wanted.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.flags = <cu.CUmemAccess_flags>access
    page = page_of(s, address)
    end = page + (size >> PAGE_BITS)
    while status == cu.CUDA_SUCCESS and page < end:
        length = alias_at(s, page)
        at = s.window.base + (page << PAGE_BITS)
        who = gpu if gpu != NULL else alias_gpu(s, page)
        wanted.location.id = who.cu
        status = cu.cuMemSetAccess(at, length << PAGE_BITS, &wanted, 1)
        if status == cu.CUDA_SUCCESS:
            s.aliases.access[page] &= ~(<uint64_t>3 << 2 * who.place)
            s.aliases.access[page] |= <uint64_t>access << 2 * who.place
            mark_pages(s, at, length << PAGE_BITS, s.aliases.access[page] != 0)
        page += length
    return status


cdef void hide_all(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    cdef uint64_t length
    while page < end:
        length = s.aliases.pages[page]
        hide(s, page)
        page += length


cdef int end_aliases(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Of a device that is idle, or never saw them."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    cdef int status = cu.CUDA_SUCCESS
    hide_all(s, address, size)
    while page < end:
        page += end_alias(s, page, &status)
    return status


cdef int unalias_memory(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    if not whole_aliases(s, address, size):
        return cu.CUDA_ERROR_INVALID_VALUE
    hide_all(s, address, size)
    return unmap_behind_work(s, alias_gpu(s, page_of(s, address)), address, size)


cdef int unalias_all(Session *s) noexcept nogil:
    """Before the session's memory is unmapped."""
    cdef uint64_t page = 0
    cdef int status = cu.CUDA_SUCCESS
    while s.aliases.count > 0:
        while alias_at(s, page) == 0:
            page += 1
        status = end_aliases(s, s.window.base + (page << PAGE_BITS), alias_at(s, page) << PAGE_BITS) or status
    return status


cdef int unmap_shown(Session *s) noexcept nogil:
    """Takes all aliases from the device; what they show, and how, is still known."""
    cdef uint64_t page = 0
    cdef uint64_t left = s.aliases.count
    cdef int status = cu.CUDA_SUCCESS
    while left > 0:
        if alias_at(s, page) == 0:
            page += 1
            continue
        status = cu.cuMemUnmap(s.window.base + (page << PAGE_BITS), alias_at(s, page) << PAGE_BITS) or status
        page += alias_at(s, page)
        left -= 1
    return status


cdef int allow_again(Session *s, uint64_t page) noexcept nogil:
    """Each device gets the access that it had to the alias that begins there."""
    cdef cu.CUmemAccessDesc wanted
    cdef int status = cu.CUDA_SUCCESS
    cdef int i
    memset(&wanted, 0, sizeof(wanted))
    wanted.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    for i in range(s.device.count):
        wanted.flags = <cu.CUmemAccess_flags>(s.aliases.access[page] >> 2 * i & 3)
        wanted.location.id = gpu_at_place(s, i).cu
        if wanted.flags != cu.CU_MEM_ACCESS_FLAGS_PROT_NONE:
            status = status or cu.cuMemSetAccess(s.window.base + (page << PAGE_BITS), alias_at(s, page) << PAGE_BITS, &wanted, 1)
    return status


cdef int show_again(Session *s) noexcept nogil:
    """All aliases that `unmap_shown` took away; none, if it fails."""
    cdef uint64_t page = 0
    cdef uint64_t end = 0
    cdef uint64_t left = s.aliases.count
    cdef uint64_t address, size
    cdef int status = cu.CUDA_SUCCESS
    while left > 0 and status == cu.CUDA_SUCCESS:
        if alias_at(s, page) == 0:
            page += 1
            continue
        address = s.window.base + (page << PAGE_BITS)
        size = alias_at(s, page) << PAGE_BITS
        status = cu.cuMemMap(address, size, 0, s.window.handles[s.aliases.homes[page]], 0)
        if status == cu.CUDA_SUCCESS:
            page += alias_at(s, page)
            end = page
            left -= 1
            status = allow_again(s, page - (size >> PAGE_BITS))
    if status != cu.CUDA_SUCCESS:
        page = 0
        while page < end:
            if alias_at(s, page) == 0:
                page += 1
                continue
            cu.cuMemUnmap(s.window.base + (page << PAGE_BITS), alias_at(s, page) << PAGE_BITS)
            page += alias_at(s, page)
    return status


cdef void write_access_on(Session *s, vector[uint8_t] *out, uint64_t page) noexcept nogil:
    """The frames that give each device its access to the alias that begins there."""
    cdef gf_req_sessionMemAccessOn access
    cdef int i
    access.address = s.window.base + (page << PAGE_BITS)
    access.size = alias_at(s, page) << PAGE_BITS
    for i in range(s.device.visible):
        access.device = i
        access.access = s.aliases.access[page] >> 2 * s.device.shown[i].place & 3
        if access.access != 0:
            write_frame(out, GF_OP_sessionMemAccessOn, &access, sizeof(access))


cdef void write_aliases(Session *s, vector[uint8_t] *out, bint imported) noexcept nogil:
    """The frames that make them, for the journal: either of memory that others have made, or of all other. The dispatcher
    stands still."""
    cdef gf_req_sessionMemAlias alias
    cdef gf_req_sessionMemAccess access
    cdef uint64_t page = 0
    cdef uint64_t left = s.aliases.count
    while left > 0:
        if alias_at(s, page) == 0:
            page += 1
            continue
        left -= 1
        if is_imported(s, s.aliases.homes[page]) != imported:
            page += alias_at(s, page)
            continue
        alias.address = s.window.base + (page << PAGE_BITS)
        alias.size = alias_at(s, page) << PAGE_BITS
        alias.home = s.window.base + (<uint64_t>s.aliases.homes[page] << PAGE_BITS)
        write_frame(out, GF_OP_sessionMemAlias, &alias, sizeof(alias))
        access.address = alias.address
        access.size = alias.size
        access.access = s.aliases.access[page] & 3
        if s.device.count > 1:
            write_access_on(s, out, page)
        elif access.access != 0:
            write_frame(out, GF_OP_sessionMemAccess, &access, sizeof(access))
        page += alias_at(s, page)
