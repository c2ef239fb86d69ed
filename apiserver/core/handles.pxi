# Handle tables: the guest's 64-bit names to our objects, one dense table per kind.


cdef inline Object *find(Session *s, uint64_t handle, int kind) noexcept nogil:
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind:
        return NULL
    cdef uint32_t slot = gf_handle_slot(handle)
    if slot >= GF_HANDLE_SLOT_LIMIT:
        return NULL
    cdef Entry *entry = &s.objects.tables[kind][slot]
    return entry.object if entry.generation == gf_handle_generation(handle) else NULL


cdef inline uint64_t cost_of(int kind) noexcept nogil:
    return CONTEXT_COST if kind == CONTEXT else OBJECT_COST


cdef int put_under(Session *s, uint64_t handle, int kind, Object *object, Context *context,
                   Object *owner) noexcept nogil:
    """Enters a new object under the handle that the guest chose; a slot in use is refused."""
    if gf_handle_tag(handle) != GF_HANDLE_TAG or <int>gf_handle_kind(handle) != kind \
            or gf_handle_slot(handle) >= GF_HANDLE_SLOT_LIMIT:
        return cu.CUDA_ERROR_INVALID_HANDLE
    cdef Entry *entry = &s.objects.tables[kind][gf_handle_slot(handle)]
    cdef int status = cu.CUDA_SUCCESS
    pthread_mutex_lock(&s.lock)
    if entry.object != NULL:
        status = cu.CUDA_ERROR_INVALID_HANDLE
    elif is_exhausted(s):
        status = cu.CUDA_ERROR_OUT_OF_MEMORY
    else:
        spend(s, cost_of(kind))
        object.kind = kind
        object.handle = handle
        object.context = context
        object.owner = owner
        object.younger = NULL
        object.elder = owner.owned
        if owner.owned != NULL:
            owner.owned.younger = object
        owner.owned = object
        entry.generation = gf_handle_generation(handle)
        entry.object = object
    pthread_mutex_unlock(&s.lock)
    return status


cdef int put(Session *s, uint64_t handle, int kind, Object *object, Context *context) noexcept nogil:
    """As put_under, of what ends with a context, or (NULL, or a context itself) with the session."""
    cdef Object *owner = &s.objects.root
    if context != NULL and &context.base != object:
        owner = &context.base
    return put_under(s, handle, kind, object, context, owner)


cdef void forget(Session *s, Object *object) noexcept nogil:
    """Takes the object out of its table; its memory is the caller's. It owns nothing any more."""
    pthread_mutex_lock(&s.lock)
    unspend(s, cost_of(object.kind))
    s.objects.tables[object.kind][gf_handle_slot(object.handle)].object = NULL
    if object.younger != NULL:
        object.younger.elder = object.elder
    else:
        object.owner.owned = object.elder
    if object.elder != NULL:
        object.elder.younger = object.younger
    drop_kept(s, &object.kept)
    pthread_mutex_unlock(&s.lock)


cdef inline Object *youngest(Session *s, Object *owner) noexcept nogil:
    """The first of what ends with an object; NULL: nothing does. s.lock is held, or the dispatcher stands still."""
    s.objects.steps += owner.owned != NULL
    return owner.owned


cdef inline Object *next_elder(Session *s, Object *object) noexcept nogil:
    """The next of the same owner. s.lock is held, or the dispatcher stands still."""
    s.objects.steps += object.elder != NULL
    return object.elder


cdef Object *first_owned(Session *s, Object *owner) noexcept nogil:
    """As `youngest`, for whoever ends one after the other; waiters may load images meanwhile."""
    cdef Object *found
    pthread_mutex_lock(&s.lock)
    found = youngest(s, owner)
    pthread_mutex_unlock(&s.lock)
    return found


cdef Object *find_any(Session *s, uint64_t handle, int first, int second) noexcept nogil:
    cdef Object *object = find(s, handle, first)
    return object if object != NULL else find(s, handle, second)


cdef void reserve_tables(Session *s) noexcept nogil:
    cdef int kind
    for kind in range(KINDS):
        s.objects.tables[kind] = <Entry *>reserve(GF_HANDLE_SLOT_LIMIT * sizeof(Entry))


cdef void put_primaries(Session *s) noexcept nogil:
    """Under the first of all handles: the guest has them without asking."""
    cdef int i
    for i in range(s.device.count):
        s.objects.tables[CONTEXT][i].object = NULL
        s.objects.tables[CONTEXT][i].generation = 0
    for i in range(s.device.visible):
        s.device.shown[i].primary.base.handle = gf_handle_make(CONTEXT, 0, i)
        s.objects.tables[CONTEXT][i].object = <Object *>s.device.shown[i].primary


cdef inline Context *context_in(Session *s, uint32_t place) noexcept nogil:
    """As a header names it; NULL: there is none."""
    return <Context *>s.objects.tables[CONTEXT][place - 1].object if 0 < place <= GF_HANDLE_SLOT_LIMIT else NULL
