# What of the modules' memory copies may touch: variables that were handed out, by name or by an address in them.


cdef void leave_variable(Session *s, uint64_t address) noexcept nogil:
    """One image less has handed it out. s.lock is held."""
    s.images.globals[0][address].users -= 1
    if s.images.globals[0][address].users == 0:
        s.images.globals.erase(address)


cdef void leave_variables(Session *s, Image *image) noexcept nogil:
    """The image goes, and with it what it handed out."""
    cdef uint64_t address
    pthread_mutex_lock(&s.lock)
    for address in image.variables[0]:
        leave_variable(s, address)
    pthread_mutex_unlock(&s.lock)


cdef int find_variable(Session *s, uint64_t owner, uint32_t context, const char *name,
                       cu.CUdeviceptr *address, size_t *size) noexcept nogil:
    """Of a module or library, as it is in a context. The dispatcher stands still."""
    cdef Image *image = <Image *>find_any(s, owner, MODULE, LIBRARY)
    cdef Context *there = context_in(s, context)
    cdef int status
    if image == NULL or there == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    status = cu.cuCtxSetCurrent(there.cu)
    if image.module != NULL:
        return status or cu.cuModuleGetGlobal(address, size, image.module, name)
    return status or cu.cuLibraryGetGlobal(address, size, image.library, name)


cdef int managed_block(uint64_t address, uint64_t *base, uint64_t *extent) noexcept nogil:
    """The driver's allocation that a managed variable is part of."""
    cdef unsigned int managed = 0
    cdef int status = cu.cuPointerGetAttribute(&managed, cu.CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
    if status == cu.CUDA_SUCCESS and not managed:
        return cu.CUDA_ERROR_NOT_FOUND
    status = status or cu.cuPointerGetAttribute(base, cu.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)
    return status or cu.cuPointerGetAttribute(extent, cu.CU_POINTER_ATTRIBUTE_RANGE_SIZE, address)


cdef void hand_out(Session *s, Image *owner, uint64_t address, uint64_t size) noexcept nogil:
    """A variable of a module or library, as it is in a context: copies may touch it from here on. With a managed one all
    that lies beside it, which the guest sends and fetches together: so no range lies within another."""
    managed_block(address, &address, &size)
    pthread_mutex_lock(&s.lock)
    if owner.variables.insert(address).second:
        s.images.globals[0][address].users += 1
    s.images.globals[0][address].size = size
    s.images.lent.erase(address)
    pthread_mutex_unlock(&s.lock)


cdef void lend_out(Session *s, uint64_t handle, Image *owner, uint64_t address, uint64_t size) noexcept nogil:
    """As hand_out, until it is taken back; what was handed out stays so."""
    cdef bint told
    managed_block(address, &address, &size)
    pthread_mutex_lock(&s.lock)
    told = owner.variables.count(address) > 0
    pthread_mutex_unlock(&s.lock)
    if not told:
        hand_out(s, owner, address, size)
        s.images.lent[0][address] = handle


cdef void take_back_lent(Session *s) noexcept nogil:
    """What the program was never told is not its to copy to."""
    cdef cpp_map[uint64_t, uint64_t].iterator at
    cdef uint64_t address
    cdef Image *owner
    pthread_mutex_lock(&s.lock)
    at = s.images.lent.begin()
    while at != s.images.lent.end():
        address = dereference(at).first
        owner = <Image *>find_any(s, dereference(at).second, MODULE, LIBRARY)
        if owner != NULL and owner.variables.erase(address) > 0:
            leave_variable(s, address)
        preincrement(at)
    s.images.lent.clear()
    pthread_mutex_unlock(&s.lock)


cdef int memory_of_code(Session *s, uint64_t address, uint64_t *base, uint64_t *size) noexcept nogil:
    """Only the driver knows what it put where for a module. It does not tell that from what is the server's own here, of
    which there is only what moves the session; that the session's kernels reach as well."""
    cdef cu.CUpointer_attribute asked[5]
    cdef void *answers[5]
    cdef unsigned int type = 0
    cdef unsigned int managed = 0
    cdef unsigned long long handle_types = 0
    cdef int status
    asked[0] = cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    asked[1] = cu.CU_POINTER_ATTRIBUTE_IS_MANAGED
    asked[2] = cu.CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES     # 0: it is no mapping
    asked[3] = cu.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
    asked[4] = cu.CU_POINTER_ATTRIBUTE_RANGE_SIZE
    answers[0] = &type
    answers[1] = &managed
    answers[2] = &handle_types
    answers[3] = base
    answers[4] = size
    if in_window(s, address, 1):
        return cu.CUDA_ERROR_NOT_FOUND
    status = cu.cuPointerGetAttributes(5, asked, answers, address)
    if status != cu.CUDA_SUCCESS:
        return status
    if type != cu.CU_MEMORYTYPE_DEVICE or managed or handle_types != 0 or address - base[0] >= size[0]:
        return cu.CUDA_ERROR_NOT_FOUND
    return cu.CUDA_SUCCESS


cdef int sessionFindMemory_call(Session *s, Frame *f, gf_req_sessionFindMemory *q, uint64_t *base,
                                uint64_t *size) noexcept nogil:
    """The first frame that found it is kept, and stays: what names the memory since, a graph say, comes behind it."""
    cdef gf_rep_sessionFindMemory *out = <gf_rep_sessionFindMemory *>f.reply
    cdef bint known
    cdef int status = memory_of_code(s, q.address, base, size)
    if status != cu.CUDA_SUCCESS:
        return status
    pthread_mutex_lock(&s.lock)
    s.images.found[0][base[0]] = size[0]
    known = keeps(&f.context.base, f.op, base[0], size[0])
    pthread_mutex_unlock(&s.lock)
    if not known:
        return cu.CUDA_SUCCESS
    out.base = base[0]
    out.size = size[0]
    reply(s, f, cu.CUDA_SUCCESS, 0, NO_PIECE)
    return DEFERRED


cdef bint is_there_yet(Session *s, uint16_t op, const uint8_t *body) noexcept nogil:
    """Whether what a frame has found is there; other frames have found nothing. s.lock is held."""
    return op != GF_OP_sessionFindMemory or is_found(s, (<gf_req_sessionFindMemory *>body).address, 1)


cdef void review_found(Session *s) noexcept nogil:
    """Code was unloaded, or a context has ended. What lay in it at addresses that only kernels told may be something else
    from now on; what lies elsewhere stays, for it may be named at any time, in a graph too."""
    cdef cpp_map[uint64_t, uint64_t].iterator at = s.images.found.begin()
    cdef Context *context = s.device.others
    cdef vector[uint64_t] gone
    cdef uint64_t base, size
    cdef size_t i
    cdef int place
    while at != s.images.found.end():
        base = size = 0
        if memory_of_code(s, dereference(at).first, &base, &size) != cu.CUDA_SUCCESS \
                or base != dereference(at).first or size != dereference(at).second:
            gone.push_back(dereference(at).first)
        preincrement(at)
    if gone.empty():
        return
    pthread_mutex_lock(&s.lock)
    for i in range(gone.size()):
        s.images.found.erase(gone[i])
    pthread_mutex_unlock(&s.lock)
    for place in range(s.device.count):
        forget_kept(s, &gpu_at_place(s, place).primary.base, is_there_yet)
    while context != NULL:
        forget_kept(s, &context.base, is_there_yet)
        context = next_context(s, context)


cdef bint is_found(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether a range lies in one that was looked for by an address in it. s.lock is held."""
    cdef cpp_map[uint64_t, uint64_t].iterator at = s.images.found.upper_bound(address)
    cdef uint64_t offset
    if at == s.images.found.begin():
        return False
    predecrement(at)
    offset = address - dereference(at).first
    return offset <= dereference(at).second and size <= dereference(at).second - offset


cdef bint is_handed_out(Session *s, uint64_t address, uint64_t size) noexcept nogil:
    """Whether a range lies in one variable, or in one range that was found."""
    cdef cpp_map[uint64_t, Global].iterator at
    cdef uint64_t offset
    cdef bint found = False
    pthread_mutex_lock(&s.lock)
    at = s.images.globals.upper_bound(address)
    if at != s.images.globals.begin():
        predecrement(at)
        offset = address - dereference(at).first
        found = offset <= dereference(at).second.size and size <= dereference(at).second.size - offset
    found = found or is_found(s, address, size)
    pthread_mutex_unlock(&s.lock)
    return found
