# What the processes of a program share, when all of them move (migration/DESIGN.md): whoever has made memory makes and
# exports it again where it goes, and the others open it there. They know it by its extent in the lease's book.


cdef void extent_token(uint32_t extent, uint8_t *token) noexcept nogil:
    """By which the memory of an extent is exported for as long as its processes arrive."""
    memset(token, 0, GF_TOKEN_SIZE)
    memcpy(token, EXTENT_TOKEN, sizeof(EXTENT_TOKEN) - 1)
    memcpy(token + GF_TOKEN_SIZE - sizeof(extent), &extent, sizeof(extent))


cdef bint is_extent_token(const uint8_t *token) noexcept nogil:
    return memcmp(token, EXTENT_TOKEN, sizeof(EXTENT_TOKEN) - 1) == 0


cdef bint is_imported(Session *s, uint64_t page) noexcept nogil:
    """Whether the mapping that begins there is memory that another process has made."""
    cdef uint32_t extent
    cdef bint imported = False
    if s.sharing.opened == NULL:
        return False
    pthread_mutex_lock(&s.book.lock)
    extent = s.sharing.extents[page]
    imported = extent > 0 and s.sharing.opened[extent - 1] > 0 and s.sharing.carried.count(page) == 0
    pthread_mutex_unlock(&s.book.lock)
    return imported


cdef bint is_own(Session *s, uint64_t page) noexcept nogil:
    """Whether a mapping begins there that this session carries when it moves."""
    return is_backed(s, page) and not is_imported(s, page)


cdef int carry_orphans(Session *s) noexcept nogil:
    """Memory whose maker has given it back, or is gone, is carried by the first one of those that have it. All processes
    of the program are held."""
    cdef uint64_t page
    cdef uint32_t extent
    cdef int status = cu.CUDA_SUCCESS
    if s.sharing.opened == NULL:
        return status
    pthread_mutex_lock(&s.book.lock)
    for page in range(s.window.reached):
        extent = s.sharing.extents[page]
        if extent == 0 or s.sharing.opened[extent - 1] == 0 or not is_first_of_orphan(s, extent - 1):
            continue
        if s.sharing.opened[extent - 1] > 1:
            status = cu.CUDA_ERROR_NOT_SUPPORTED
            break
        take_orphan(s, extent - 1)
        s.sharing.carried.insert(page)
    pthread_mutex_unlock(&s.book.lock)
    return status


cdef void carry_nothing(Session *s) noexcept nogil:
    pthread_mutex_lock(&s.book.lock)
    s.sharing.carried.clear()
    pthread_mutex_unlock(&s.book.lock)


cdef int sessionRestoreOrphan_call(Session *s, Frame *f, gf_req_sessionRestoreOrphan *q) noexcept nogil:
    """A mapping that was carried is again one that nobody has made: it counts as the lease's, not as this process's."""
    cdef uint64_t page = page_of(s, q.address)
    cdef uint32_t extent
    cdef int status
    if not on_pages(s, q.address, q.size) or not is_own(s, page) or s.window.pages[page] != q.size >> PAGE_BITS:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = prepare_sharing(s)
    status = status or enter_extent(s, gpu_at(s, page), q.size, &extent)
    if status == cu.CUDA_ERROR_NOT_SUPPORTED:
        return cu.CUDA_SUCCESS      # it has the lease alone
    if status != cu.CUDA_SUCCESS:
        return status
    pthread_mutex_lock(&s.book.lock)
    has_extent(s, s.book.seat, extent)[0] = GF_HAS_OPENED
    s.sharing.extents[page] = extent + 1
    s.sharing.opened[extent] = 1
    pthread_mutex_unlock(&s.book.lock)
    pthread_mutex_lock(&s.lock)
    s.sharing.imported += 1
    pthread_mutex_unlock(&s.lock)
    discharge(s, gpu_at(s, page), q.size)
    return status


cdef void list_exports(Session *s, vector[Exported] *out) noexcept nogil:
    """By which names others find what this session has made."""
    cdef Export *export_
    cdef Exported one
    cdef uint64_t page
    pthread_mutex_lock(&s.lock)
    export_ = s.sharing.exports
    while export_ != NULL:
        memcpy(one.token, export_.token, GF_TOKEN_SIZE)
        one.address = export_.address
        one.size = export_.size
        one.event = export_.event.base.handle if export_.event != NULL else 0
        out.push_back(one)
        export_ = export_.next
    pthread_mutex_unlock(&s.lock)
    one.event = 0
    if s.sharing.extents == NULL:
        return
    for page in range(s.window.reached):
        if s.sharing.extents[page] > 0 and is_own(s, page) and others_have(s, s.sharing.extents[page] - 1):
            extent_token(s.sharing.extents[page] - 1, one.token)
            one.address = s.window.base + (page << PAGE_BITS)
            one.size = <uint64_t>s.window.pages[page] << PAGE_BITS
            out.push_back(one)


cdef void list_imports(Session *s, vector[Imported] *out) noexcept nogil:
    """What others have made: memory that is mapped, and what was found and not mapped yet."""
    cdef Import *import_
    cdef Imported one
    cdef uint64_t page
    if s.sharing.opened != NULL:
        for page in range(s.window.reached):
            if is_backed(s, page) and is_imported(s, page):
                extent_token(s.sharing.extents[page] - 1, one.token)
                one.address = s.window.base + (page << PAGE_BITS)
                one.size = <uint64_t>s.window.pages[page] << PAGE_BITS
                one.seat = maker_of(s, s.sharing.extents[page] - 1)
                one.session = 0
                one.context = context_slot(gpu_at_place(s, s.sharing.openers[page]).primary)
                out.push_back(one)
    pthread_mutex_lock(&s.lock)
    import_ = s.sharing.imports
    one.address = one.size = one.seat = one.context = 0
    while import_ != NULL:
        memcpy(one.token, import_.token, GF_TOKEN_SIZE)
        one.session = import_.session
        out.push_back(one)
        import_ = import_.next
    pthread_mutex_unlock(&s.lock)


cdef void list_events_of(Session *s, Context *context, vector[OpenedEvent] *out) noexcept nogil:
    cdef Object *object = youngest(s, &context.base)
    cdef Event *event
    cdef OpenedEvent one
    while object != NULL:
        event = <Event *>object
        if object.kind == EVENT and is_anothers(s, event):
            memcpy(one.token, event.token, GF_TOKEN_SIZE)
            one.handle = object.handle
            one.context = context_slot(context)
            one.session = event.maker
            out.push_back(one)
        object = next_elder(s, object)


cdef void list_opened_events(Session *s, vector[OpenedEvent] *out) noexcept nogil:
    """Events that others have made."""
    cdef Context *context = s.device.others
    cdef int place
    for place in range(s.device.count):
        list_events_of(s, gpu_at_place(s, place).primary, out)
    while context != NULL:
        list_events_of(s, context, out)
        context = next_context(s, context)


cdef bint awaits_import(Session *s) noexcept nogil:
    """Whether somebody was asked for something and has not answered."""
    cdef Import *one
    cdef bint awaits = False
    pthread_mutex_lock(&s.lock)
    one = s.sharing.imports
    while one != NULL and not awaits:
        awaits = not one.here
        one = one.next
    pthread_mutex_unlock(&s.lock)
    return awaits


cdef void end_extent_exports(Session *s) noexcept nogil:
    """All of the program's processes are here."""
    cdef Export **link
    cdef Export *one
    pthread_mutex_lock(&s.lock)
    link = &s.sharing.exports
    while link[0] != NULL:
        one = link[0]
        if is_extent_token(one.token):
            link[0] = one.next
            s.sharing.exported -= 1
            free(one)
        else:
            link = &one.next
    pthread_mutex_unlock(&s.lock)
