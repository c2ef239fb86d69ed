# Handle tables: the guest's 64-bit names to our objects, one dense table per kind.


cdef inline Object *find(Session *s, uint64_t handle, int kind) noexcept nogil:
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind:
        return NULL
    cdef uint32_t slot = gf_handle_slot(handle)
    if slot >= GF_HANDLE_SLOT_LIMIT:
        return NULL
    cdef Entry *entry = &s.objects.tables[kind][slot]
    return entry.object if entry.generation == gf_handle_generation(handle) else NULL


cdef int put(Session *s, uint64_t handle, int kind, Object *object, Context *context) noexcept nogil:
    """Enters a new object under the handle that the guest chose; a slot in use is refused."""
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind \
            or gf_handle_slot(handle) >= GF_HANDLE_SLOT_LIMIT:
        return cu.CUDA_ERROR_INVALID_HANDLE
    cdef Entry *entry = &s.objects.tables[kind][gf_handle_slot(handle)]
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    if entry.object != NULL:
        status = cu.CUDA_ERROR_INVALID_HANDLE
    else:
        object.kind = kind
        object.handle = handle
        object.context = context
        object.previous = NULL
        object.next = s.objects.first
        if s.objects.first != NULL:
            s.objects.first.previous = object
        s.objects.first = object
        entry.generation = gf_handle_generation(handle)
        entry.object = object
    pthread_mutex_unlock(&s.lock)
    return status


cdef void forget(Session *s, Object *object) noexcept nogil:
    """Takes the object out of its table; its memory is the caller's."""
    pthread_mutex_lock(&s.lock)
    s.objects.tables[object.kind][gf_handle_slot(object.handle)].object = NULL
    if object.previous != NULL:
        object.previous.next = object.next
    else:
        s.objects.first = object.next
    if object.next != NULL:
        object.next.previous = object.previous
    free_kept(&object.kept)
    pthread_mutex_unlock(&s.lock)


cdef Object *find_any(Session *s, uint64_t handle, int first, int second) noexcept nogil:
    cdef Object *object = find(s, handle, first)
    return object if object != NULL else find(s, handle, second)


cdef void reserve_tables(Session *s) noexcept nogil:
    cdef int kind
    for kind in range(KINDS):
        s.objects.tables[kind] = <Entry *>reserve(GF_HANDLE_SLOT_LIMIT * sizeof(Entry))


cdef void put_primary(Session *s) noexcept nogil:
    """Under the first of all handles: the guest has it without asking."""
    s.objects.tables[CONTEXT][0].object = <Object *>s.device.primary


cdef inline Context *context_in(Session *s, uint32_t place) noexcept nogil:
    """As a header names it; NULL: there is none."""
    return <Context *>s.objects.tables[CONTEXT][place - 1].object if 0 < place <= GF_HANDLE_SLOT_LIMIT else NULL
