# The device: the context, window and staging that this process makes once, and what WELCOME tells a guest of it.

cdef enum:
    MINIMUM_DRIVER = 12080      # every driver function used here exists since then


cdef int check_granularity(Session *s) noexcept nogil:
    cdef cu.CUmemAllocationProp properties
    cdef size_t granularity = 0
    memset(&properties, 0, sizeof(properties))
    properties.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = s.device.cu
    cdef int status = cu.cuMemGetAllocationGranularity(&granularity, &properties, cu.CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    if status == cu.CUDA_SUCCESS and (granularity == 0 or PAGE % granularity != 0):
        return cu.CUDA_ERROR_NOT_SUPPORTED
    return status


cdef void *reserve(size_t size) noexcept nogil:
    """Zeroed memory that costs nothing until it is touched."""
    cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if memory == MAP_FAILED:
        return NULL
    return memory


cdef int start_device(Session *s, int ordinal) noexcept nogil:
    cdef cu.CUcontext made
    cdef int shareable = 0
    cdef int status = cu.cuInit(0)
    status = status or cu.cuDeviceGet(&s.device.cu, ordinal)
    status = status or cu.cuDevicePrimaryCtxRetain(&made, s.device.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    reserve_tables(s)
    reserve_staging(s)
    reserve_input(s)
    reserve_streams(s)
    s.device.primary = new_context(s, made)
    s.device.primary.base.kind = CONTEXT
    put_primary(s)
    status = enter(s, s.device.primary)
    status = status or cu.cuDeviceGetAttribute(
        &shareable, cu.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, s.device.cu)
    s.device.shareable = shareable
    status = status or check_granularity(s)
    status = status or reserve_window(s)
    if status != cu.CUDA_SUCCESS:
        return status
    return furnish_primary(s)


cdef int describe_device(Session *s, gf_device *out) noexcept nogil:
    cdef cu.CUuuid uuid
    cdef size_t total = 0
    cdef size_t limit
    cdef int i, value, status
    cdef int least = 0
    cdef int greatest = 0
    memset(out, 0, sizeof(gf_device))
    status = cu.cuDeviceGetName(out.name, 256, s.device.cu)
    status = status or cu.cuDeviceGetUuid(&uuid, s.device.cu)
    status = status or cu.cuDeviceTotalMem(&total, s.device.cu)
    status = status or enter(s, s.device.primary)
    status = status or cu.cuCtxGetStreamPriorityRange(&least, &greatest)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(out.uuid, &uuid, 16)
    out.total_memory = total
    out.stream_priority_least = least
    out.stream_priority_greatest = greatest
    out.attribute_count = GF_ATTRIBUTE_COUNT
    for i in range(GF_ATTRIBUTE_COUNT):
        value = 0
        if cu.cuDeviceGetAttribute(&value, <cu.CUdevice_attribute>i, s.device.cu) == cu.CUDA_SUCCESS:
            out.attributes[i] = value
    for i in range(GF_LIMIT_COUNT):
        limit = 0
        out.limits[i] = -1
        if cu.cuCtxGetLimit(&limit, <cu.CUlimit>i) == cu.CUDA_SUCCESS:
            out.limits[i] = <int64_t>limit
    return cu.CUDA_SUCCESS


cdef bint is_simulated() noexcept nogil:
    return dlsym(RTLD_DEFAULT, b"gpuferry_simulated_device") != NULL


cdef inline void note_status(Session *s, int status) noexcept nogil:
    if status > 0 and gf_destroys_context(status):
        s.device.broken = True


cdef inline int enter(Session *s, Context *context) noexcept nogil:
    """Makes a context current on the dispatcher, if it is not."""
    if context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    if s.device.current == context:
        return cu.CUDA_SUCCESS
    cdef int status = cu.cuCtxSetCurrent(context.cu)
    s.device.current = context if status == cu.CUDA_SUCCESS else NULL
    return status


cdef void forget_current(Session *s) noexcept nogil:
    """On the dispatcher, whatever was current there."""
    s.device.current = NULL


cdef void note_configured(Session *s) noexcept nogil:
    """A context was given what only a reset takes from it."""
    s.device.reconfigured = True


cdef void begin_device(Session *s) noexcept nogil:
    s.device.reconfigured = False
