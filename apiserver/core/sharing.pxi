# Memory that the processes of a lease share (WIRE.md 15). An export is a name for a range; who wants it asks the monitor by
# way of the shell, and is sent descriptors of the physical memory, which it maps in its own window. It counts once: as its
# maker's while that has it mapped, else as the lease's, as long as anybody has.

cdef enum:
    EXPORTS_MOST = 1 << 16
    IMPORTS_MOST = 64           # that are wanted or not mapped yet, at once


cdef void begin_sharing(Session *s) noexcept nogil:
    s.sharing.imported = 0
    if s.sharing.carried == NULL:
        s.sharing.carried = new cpp_set[uint64_t]()


cdef Export **find_export(Session *s, const uint8_t *token) noexcept nogil:
    """s.lock is held."""
    cdef Export **link = &s.sharing.exports
    while link[0] != NULL and memcmp(link[0].token, token, GF_TOKEN_SIZE) != 0:
        link = &link[0].next
    return link


cdef int note_export(Session *s, const uint8_t *token, uint64_t address, uint64_t size, Event *event) noexcept nogil:
    """Memory of the window or, if there is an event, its words in our arena."""
    cdef Export *made
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    if find_export(s, token)[0] != NULL:
        status = cu.CUDA_ERROR_INVALID_VALUE
    elif s.sharing.exported == EXPORTS_MOST:
        status = cu.CUDA_ERROR_OUT_OF_MEMORY
    else:
        made = <Export *>calloc(1, sizeof(Export))
        memcpy(made.token, token, GF_TOKEN_SIZE)
        made.address = address
        made.size = size
        made.event = event
        made.next = s.sharing.exports
        s.sharing.exports = made
        s.sharing.exported += 1
    pthread_mutex_unlock(&s.lock)
    return status


cdef int sessionExportMemory_call(Session *s, Frame *f, gf_req_sessionExportMemory *q) noexcept nogil:
    if not in_window(s, q.address, q.size):
        return cu.CUDA_ERROR_INVALID_VALUE
    return note_export(s, q.token, q.address, q.size, NULL)


cdef int sessionExportEvent_call(Session *s, Frame *f, gf_req_sessionExportEvent *q, Event *event) noexcept nogil:
    if event.arena == NULL or event.arena != s.records.own:
        return cu.CUDA_ERROR_INVALID_HANDLE
    return note_export(s, q.token, event.cell * CELL_WORDS * sizeof(uint64_t), CELL_WORDS * sizeof(uint64_t), event)


cdef void end_event_export(Session *s, Event *event) noexcept nogil:
    """It is destroyed: nobody opens it any more."""
    cdef Export **link
    cdef Export *one
    pthread_mutex_lock(&s.lock)
    link = &s.sharing.exports
    while link[0] != NULL:
        one = link[0]
        if one.event == event:
            link[0] = one.next
            s.sharing.exported -= 1
            free(one)
        else:
            link = &one.next
    pthread_mutex_unlock(&s.lock)


cdef int sessionExportEnd_call(Session *s, Frame *f, gf_req_sessionExportEnd *q) noexcept nogil:
    cdef Export **link
    cdef Export *found
    pthread_mutex_lock(&s.lock)
    link = find_export(s, q.token)
    found = link[0]
    if found != NULL:
        link[0] = found.next
        s.sharing.exported -= 1
    pthread_mutex_unlock(&s.lock)
    if found == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    free(found)
    return cu.CUDA_SUCCESS


cdef int part_at(Session *s, uint64_t page, Segment *part) noexcept nogil:
    """A descriptor of the mapping that begins there. book.lock is held: it does not end before the book knows of it."""
    cdef cu.CUmemGenericAllocationHandle handle
    cdef uint64_t serial
    cdef int status = retain(s, page, &part.pages, &serial, &handle)
    if status != cu.CUDA_SUCCESS or part.pages == 0:
        return status or cu.CUDA_ERROR_INVALID_VALUE
    status = cu.cuMemExportToShareableHandle(&part.fd, handle, cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
    cu.cuMemRelease(handle)
    return status


cdef int lend(Session *s, uint64_t page, Segment *part, uint32_t seat) noexcept nogil:
    """The process with this seat is about to have the mapping too, says the book. book.lock is held."""
    cdef int status = cu.CUDA_SUCCESS
    if s.sharing.extents == NULL:
        s.sharing.extents = <uint32_t *>reserve((s.window.size >> PAGE_BITS) * sizeof(uint32_t))
    if s.sharing.extents == NULL:
        status = cu.CUDA_ERROR_OUT_OF_MEMORY
    elif s.sharing.extents[page] > 0:
        part.extent = s.sharing.extents[page] - 1
    else:
        status = enter_extent(s, gpu_at(s, page), <uint64_t>part.pages << PAGE_BITS, &part.extent)
        if status == cu.CUDA_SUCCESS:
            s.sharing.extents[page] = part.extent + 1
    if status == cu.CUDA_SUCCESS:
        has_extent(s, seat, part.extent)[0] = GF_HAS_OPENED
    return status


cdef uint64_t begins_at(Session *s, uint64_t page) noexcept nogil:
    """Where the mapping begins that holds a page; if none does, anywhere."""
    pthread_mutex_lock(&s.window.lock)
    while page > 0 and s.window.pages[page] == 0:
        page -= 1
    pthread_mutex_unlock(&s.window.lock)
    return page


cdef int parts_of_export(Session *s, const uint8_t *token, uint32_t seat, uint64_t *offset, uint64_t *size,
                         vector[Segment] *parts) noexcept nogil:
    """On the shell's thread."""
    cdef Export *found
    cdef Segment part
    cdef uint64_t page, last, address = 0
    cdef size_t i
    cdef bint of_event = False
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    found = find_export(s, token)[0]
    if found != NULL:
        address = found.address
        size[0] = found.size
        of_event = found.event != NULL
    pthread_mutex_unlock(&s.lock)
    if of_event:
        offset[0] = address
        part.fd = fcntl(s.records.file, F_DUPFD_CLOEXEC, 0)
        part.pages = part.extent = 0
        if part.fd >= 0:
            parts.push_back(part)
        return cu.CUDA_SUCCESS if part.fd >= 0 else cu.CUDA_ERROR_OUT_OF_MEMORY
    if found == NULL or seat >= GF_SEATS or seat == s.book.seat:
        return cu.CUDA_ERROR_INVALID_VALUE
    last = page_of(s, address + size[0] - 1)
    page = begins_at(s, page_of(s, address))
    offset[0] = address - s.window.base - (page << PAGE_BITS)
    while page <= last and status == cu.CUDA_SUCCESS:
        part.fd = -1
        pthread_mutex_lock(&s.book.lock)
        status = part_at(s, page, &part)
        if status == cu.CUDA_SUCCESS:
            status = lend(s, page, &part, seat)
            parts.push_back(part)
            page += part.pages
        pthread_mutex_unlock(&s.book.lock)
    if status == cu.CUDA_SUCCESS:
        return status
    close_parts(parts)
    return status


cdef void leave_extent(Session *s, uint32_t extent) noexcept nogil:
    """Something of an extent has ended here. If it was the last, the book says so. book.lock is held."""
    if s.book.extents == NULL or (s.sharing.opened != NULL and s.sharing.opened[extent] > 0):
        return
    if s.sharing.pending != NULL and s.sharing.pending[extent] > 0:
        return
    if s.sharing.coming > 0 and has_extent(s, s.book.seat, extent)[0] == GF_HAS_OPENED:
        s.sharing.left = True
    else:
        has_extent(s, s.book.seat, extent)[0] = 0


cdef void keep_parts(Session *s, const vector[Segment] *parts, int change) noexcept nogil:
    """Memory of these extents stays this process's, though it is not mapped yet; -1: no longer for their sake."""
    cdef size_t i
    cdef uint32_t extent
    pthread_mutex_lock(&s.book.lock)
    for i in range(parts.size()):
        extent = parts[0][i].extent
        if s.sharing.pending != NULL and parts[0][i].pages > 0 and extent < GF_EXTENTS:
            s.sharing.pending[extent] += change
            if change < 0 and s.book.extents != NULL and has_extent(s, s.book.seat, extent)[0] == GF_HAS_OPENED:
                leave_extent(s, extent)
    pthread_mutex_unlock(&s.book.lock)


cdef void note_arrived(Session *s, bint found) noexcept nogil:
    """One import less is to come. After the last, what was left meanwhile is left in the book too; and what was lent for
    one that did not come."""
    cdef uint32_t extent
    pthread_mutex_lock(&s.book.lock)
    s.sharing.left = s.sharing.left or not found
    if s.sharing.coming > 0:        # else the session has ended meanwhile
        s.sharing.coming -= 1
    if s.sharing.coming == 0 and s.sharing.left:
        s.sharing.left = False
        for extent in range(GF_EXTENTS):
            if s.book.extents != NULL and has_extent(s, s.book.seat, extent)[0] == GF_HAS_OPENED:
                leave_extent(s, extent)
    pthread_mutex_unlock(&s.book.lock)


cdef void close_parts(const vector[Segment] *parts) noexcept nogil:
    cdef size_t i
    for i in range(parts.size()):
        close(parts[0][i].fd)


cdef void free_import(Import *import_) noexcept nogil:
    close_parts(import_.parts)
    del import_.parts
    free(import_)


cdef void end_import(Session *s, Import *import_) noexcept nogil:
    """It is mapped, or will not be. Neither lock is held."""
    keep_parts(s, import_.parts, -1)
    free_import(import_)


cdef int on_sessionImportFind(Session *s, Frame *f, gf_req_sessionImportFind *q,
                              gf_rep_sessionImportFind *out) noexcept nogil:
    """The monitor is asked; whoever hears its answer passes it on to the guest."""
    cdef Import *made
    pthread_mutex_lock(&s.lock)
    if s.sharing.wanted == IMPORTS_MOST:
        pthread_mutex_unlock(&s.lock)
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    s.sharing.wanted += 1
    s.sharing.numbers += 1
    made = <Import *>calloc(1, sizeof(Import))
    made.parts = new vector[Segment]()
    made.frame = f[0]
    made.frame.body = NULL
    made.number = s.sharing.numbers
    made.session = q.session
    memcpy(made.token, q.token, GF_TOKEN_SIZE)
    pthread_mutex_unlock(&s.lock)
    pthread_mutex_lock(&s.book.lock)
    s.sharing.coming += 1
    pthread_mutex_unlock(&s.book.lock)
    pthread_mutex_lock(&s.lock)
    made.next = s.sharing.imports
    s.sharing.imports = made
    pthread_mutex_unlock(&s.lock)
    eventfd_write(s.sending.output.bell, 1)
    return DEFERRED


cdef uint32_t next_wanted(Session *s, uint64_t *session, uint8_t *token) noexcept nogil:
    """The number of one for which nobody was asked yet; 0: none."""
    cdef uint32_t number = 0
    cdef Import *one
    pthread_mutex_lock(&s.lock)
    one = s.sharing.imports
    while one != NULL and one.asked:
        one = one.next
    if one != NULL:
        one.asked = True
        number = one.number
        session[0] = one.session
        memcpy(token, one.token, GF_TOKEN_SIZE)
    pthread_mutex_unlock(&s.lock)
    return number


cdef void unlink_import(Session *s, Import *import_) noexcept nogil:
    """s.lock is held."""
    cdef Import **link = &s.sharing.imports
    while link[0] != import_:
        link = &link[0].next
    link[0] = import_.next
    s.sharing.wanted -= 1


cdef void deliver_import(Session *s, uint32_t number, bint found, bint more, uint64_t offset, uint64_t size,
                         const vector[Segment] *parts) noexcept nogil:
    """On the shell's thread. What nobody waits for (any more) is closed."""
    cdef gf_rep_sessionImportFind *out
    cdef Import *one
    cdef Frame frame
    cdef uint64_t pages = 0
    cdef size_t i
    found = prepare_sharing(s) == cu.CUDA_SUCCESS and found
    keep_parts(s, parts, 1)
    pthread_mutex_lock(&s.lock)
    one = s.sharing.imports
    while one != NULL and (one.number != number or one.here):
        one = one.next
    if one != NULL:
        for i in range(parts.size()):
            one.parts.push_back(parts[0][i])
    if one != NULL and not more:
        frame = one.frame
        one.offset = offset
        for i in range(one.parts.size()):
            pages += one.parts[0][i].pages
        if found:
            one.here = True     # and maybe mapped, and gone, before the next line
        else:
            unlink_import(s, one)
    pthread_mutex_unlock(&s.lock)
    if one == NULL:
        keep_parts(s, parts, -1)
        close_parts(parts)
    if one == NULL or more:
        return
    if not found:
        end_import(s, one)
    note_arrived(s, found)
    out = <gf_rep_sessionImportFind *>frame.reply
    out.size = pages << PAGE_BITS
    out.offset = offset
    out.bytes = size
    reply(s, &frame, cu.CUDA_SUCCESS if found else cu.CUDA_ERROR_INVALID_VALUE, 0, NO_PIECE)


cdef void give_up_imports(Session *s) noexcept nogil:
    cdef vector[Segment] none
    cdef Import *one
    cdef uint32_t number = 1
    while number != 0:
        number = 0
        pthread_mutex_lock(&s.lock)
        one = s.sharing.imports
        while one != NULL and (one.here or not one.asked):
            one = one.next
        if one != NULL:
            number = one.number
        pthread_mutex_unlock(&s.lock)
        if number != 0:
            deliver_import(s, number, False, False, 0, 0, &none)


cdef int open_part(Session *s, Gpu *gpu, uint64_t address, const Segment *part) noexcept nogil:
    cdef cu.CUmemGenericAllocationHandle handle
    cdef cu.CUmemAllocationProp properties
    cdef uint64_t size = <uint64_t>part.pages << PAGE_BITS
    cdef int status = cu.cuMemImportFromShareableHandle(&handle, <void *><size_t>part.fd,
                                                        cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    if status != cu.CUDA_SUCCESS:
        return status
    status = cu.cuMemGetAllocationPropertiesFromHandle(&properties, handle)
    status = status or place(s, gpu_of(s, properties.location.id), address, size, handle)
    if status != cu.CUDA_SUCCESS:
        cu.cuMemRelease(handle)
        return status
    pthread_mutex_lock(&s.book.lock)
    s.sharing.extents[page_of(s, address)] = part.extent + 1
    s.sharing.openers[page_of(s, address)] = <uint8_t>gpu.place
    s.sharing.opened[part.extent] += 1
    has_extent(s, s.book.seat, part.extent)[0] = GF_HAS_OPENED
    pthread_mutex_unlock(&s.book.lock)
    pthread_mutex_lock(&s.lock)
    s.sharing.imported += 1
    pthread_mutex_unlock(&s.lock)
    return status


cdef int prepare_sharing(Session *s) noexcept nogil:
    pthread_mutex_lock(&s.book.lock)
    if s.sharing.extents == NULL:
        s.sharing.extents = <uint32_t *>reserve((s.window.size >> PAGE_BITS) * sizeof(uint32_t))
    if s.sharing.opened == NULL:
        s.sharing.opened = <uint32_t *>reserve(GF_EXTENTS * sizeof(uint32_t))
    if s.sharing.pending == NULL:
        s.sharing.pending = <uint32_t *>reserve(GF_EXTENTS * sizeof(uint32_t))
    if s.sharing.openers == NULL:
        s.sharing.openers = <uint8_t *>reserve(s.window.size >> PAGE_BITS)
    pthread_mutex_unlock(&s.book.lock)
    if s.sharing.extents == NULL or s.sharing.opened == NULL or s.sharing.pending == NULL or s.sharing.openers == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    return cu.CUDA_SUCCESS


cdef int import_parts(Session *s, Gpu *gpu, const vector[Segment] *parts, uint64_t address) noexcept nogil:
    """Maps all parts there, for the device to reach, whosever memory they are."""
    cdef uint64_t size = 0
    cdef uint64_t at = address
    cdef size_t i
    cdef int status = cu.CUDA_SUCCESS
    for i in range(parts.size()):
        if parts[0][i].extent >= GF_EXTENTS or s.book.extents == NULL:
            return cu.CUDA_ERROR_INVALID_VALUE
        size += <uint64_t>parts[0][i].pages << PAGE_BITS
    status = check_unmapped(s, address, size)
    status = status or prepare_sharing(s)
    if status != cu.CUDA_SUCCESS:
        return status
    wait_for_unmaps(s, address, size, NEVER)
    status = enter(s, s.device.primary)
    for i in range(parts.size()):
        if status == cu.CUDA_SUCCESS:
            status = open_part(s, gpu, at, &parts[0][i])
            if status == cu.CUDA_SUCCESS:
                size = <uint64_t>parts[0][i].pages << PAGE_BITS
                at += size
                if gpu_at(s, page_of(s, at - size)) != gpu:
                    status = set_access(gpu, at - size, size, True)
    if status != cu.CUDA_SUCCESS and at > address:
        unmap_memory(s, address, at - address)
    return status


cdef Import *take_import(Session *s, const uint8_t *token) noexcept nogil:
    """What was found by that name; NULL: nothing."""
    cdef Import *one
    pthread_mutex_lock(&s.lock)
    one = s.sharing.imports
    while one != NULL and (not one.here or memcmp(one.token, token, GF_TOKEN_SIZE) != 0):
        one = one.next
    if one != NULL:
        unlink_import(s, one)
    pthread_mutex_unlock(&s.lock)
    return one


cdef int sessionImportMap_call(Session *s, Frame *f, gf_req_sessionImportMap *q) noexcept nogil:
    cdef Import *one = take_import(s, q.token)
    cdef int status
    if one == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = import_parts(s, gpu_in(s, f.context), one.parts, q.address)
    end_import(s, one)
    return status


cdef int on_sessionImportEvent(Session *s, Frame *f, gf_req_sessionImportEvent *q) noexcept nogil:
    cdef Import *one = take_import(s, q.token)
    cdef cu.CUevent made
    cdef Event *event
    cdef int status = cu.CUDA_SUCCESS
    if one == NULL:
        return cu.CUDA_ERROR_INVALID_VALUE
    if one.parts.size() != 1 or one.parts[0][0].pages != 0:
        status = cu.CUDA_ERROR_INVALID_VALUE
    status = status or cu.cuEventCreate(&made, cu.CU_EVENT_DISABLE_TIMING)
    status = status or adopt_event(s, f, q.event, made)
    if status == cu.CUDA_SUCCESS:
        find_event(s, f, q.event, &event)
        status = open_cell(s, event, one.session, one.parts[0][0].fd, one.offset)
        memcpy(event.token, one.token, GF_TOKEN_SIZE)
        if status != cu.CUDA_SUCCESS:
            drop_event(s, event)
    end_import(s, one)
    return status


cdef uint64_t leave_extents(Session *s, Gpu *gpu, uint64_t address, uint64_t size) noexcept nogil:
    """Mappings that are ending are this process's no more, says the book. How much of them does not count as this
    process's any more: others have claimed it, or have what this one made."""
    cdef uint64_t page = page_of(s, address)
    cdef uint64_t end = page + (size >> PAGE_BITS)
    cdef uint64_t others = 0
    cdef uint64_t ended = 0
    cdef uint32_t extent
    cdef uint64_t bytes
    if s.sharing.extents == NULL:
        return 0
    pthread_mutex_lock(&s.book.lock)
    if s.book.file >= 0:
        flock(s.book.file, LOCK_EX)     # whoever adds up finds it with this process, or left to the others
    while page < end:
        bytes = <uint64_t>s.window.pages[page] << PAGE_BITS
        if s.sharing.extents[page] > 0:
            extent = s.sharing.extents[page] - 1
            s.sharing.extents[page] = 0
            if s.sharing.opened != NULL and s.sharing.opened[extent] > 0:
                s.sharing.opened[extent] -= 1
                others += bytes
                ended += 1
            elif s.book.extents != NULL and others_have(s, extent):
                hand_over(s, gpu, bytes)
                others += bytes
            leave_extent(s, extent)
        page += s.window.pages[page]
    if s.book.file >= 0:
        flock(s.book.file, LOCK_UN)
    pthread_mutex_unlock(&s.book.lock)
    pthread_mutex_lock(&s.lock)
    s.sharing.imported -= ended
    pthread_mutex_unlock(&s.lock)
    return others


cdef bint shares_memory(Session *s) noexcept nogil:
    """Whether any of its memory is, or may be about to be, another process's too."""
    cdef bint so
    pthread_mutex_lock(&s.lock)
    so = s.sharing.exports != NULL or s.sharing.imports != NULL or s.sharing.imported > 0
    pthread_mutex_unlock(&s.lock)
    return so


cdef void end_sharing(Session *s) noexcept nogil:
    """The monitor empties the seat."""
    carry_nothing(s)
    cdef Export *export_
    cdef Import *import_
    pthread_mutex_lock(&s.lock)
    while s.sharing.exports != NULL:
        export_ = s.sharing.exports
        s.sharing.exports = export_.next
        free(export_)
    while s.sharing.imports != NULL:
        import_ = s.sharing.imports
        unlink_import(s, import_)
        free_import(import_)
    s.sharing.exported = 0
    pthread_mutex_unlock(&s.lock)
    pthread_mutex_lock(&s.book.lock)
    if s.sharing.extents != NULL:
        madvise(s.sharing.extents, (s.window.size >> PAGE_BITS) * sizeof(uint32_t), MADV_DONTNEED)
    if s.sharing.opened != NULL:
        madvise(s.sharing.opened, GF_EXTENTS * sizeof(uint32_t), MADV_DONTNEED)
    if s.sharing.pending != NULL:
        madvise(s.sharing.pending, GF_EXTENTS * sizeof(uint32_t), MADV_DONTNEED)
    s.sharing.coming = 0
    s.sharing.left = False
    pthread_mutex_unlock(&s.book.lock)
