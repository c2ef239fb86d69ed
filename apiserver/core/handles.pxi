# Handle tables: the guest's 64-bit names to our objects, one dense table per kind.


cdef inline Object *find(Session *s, uint64_t handle, int kind) noexcept nogil:
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind:
        return NULL
    cdef uint32_t slot = gf_handle_slot(handle)
    if slot >= GF_HANDLE_SLOT_LIMIT:
        return NULL
    cdef Entry *entry = &s.tables[kind][slot]
    return entry.object if entry.generation == gf_handle_generation(handle) else NULL


cdef int put(Session *s, uint64_t handle, int kind, Object *object, Context *context) noexcept nogil:
    """Enters a new object under the handle that the guest chose; a slot in use is refused."""
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind \
            or gf_handle_slot(handle) >= GF_HANDLE_SLOT_LIMIT:
        return cu.CUDA_ERROR_INVALID_HANDLE
    cdef Entry *entry = &s.tables[kind][gf_handle_slot(handle)]
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    if entry.object != NULL:
        status = cu.CUDA_ERROR_INVALID_HANDLE
    else:
        object.kind = kind
        object.handle = handle
        object.context = context
        object.previous = NULL
        object.next = s.objects
        if s.objects != NULL:
            s.objects.previous = object
        s.objects = object
        entry.generation = gf_handle_generation(handle)
        entry.object = object
    pthread_mutex_unlock(&s.lock)
    return status


cdef void forget(Session *s, Object *object) noexcept nogil:
    """Takes the object out of its table; its memory is the caller's."""
    pthread_mutex_lock(&s.lock)
    s.tables[object.kind][gf_handle_slot(object.handle)].object = NULL
    if object.previous != NULL:
        object.previous.next = object.next
    else:
        s.objects = object.next
    if object.next != NULL:
        object.next.previous = object.previous
    free_kept(&object.kept)
    pthread_mutex_unlock(&s.lock)


cdef Object *find_any(Session *s, uint64_t handle, int first, int second) noexcept nogil:
    cdef Object *object = find(s, handle, first)
    return object if object != NULL else find(s, handle, second)
