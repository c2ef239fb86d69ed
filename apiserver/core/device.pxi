# The device: context, window and staging of this process, made once; and what a guest is told of it.

cdef enum:
    MINIMUM_DRIVER = 12080      # every driver function used here exists since then


cdef int reserve_window(Session *s) noexcept nogil:
    """The same range in every API server, so that an address means the same everywhere; smaller only where it must be."""
    cdef cu.CUdeviceptr got = 0
    cdef uint64_t size = <uint64_t>1 << 40
    cdef int status = cu.CUDA_SUCCESS
    while size >= <uint64_t>1 << 34:
        status = cu.cuMemAddressReserve(&got, size, PAGE, <uint64_t>0x200000000000, 0)
        if status == cu.CUDA_SUCCESS and got & (PAGE - 1) == 0:
            s.window = got
            s.window_size = size
            return status
        if status == cu.CUDA_SUCCESS:
            cu.cuMemAddressFree(got, size)
            status = cu.CUDA_ERROR_INVALID_VALUE
        size >>= 1
    return status


cdef int check_granularity(Session *s) noexcept nogil:
    cdef cu.CUmemAllocationProp properties
    cdef size_t granularity = 0
    memset(&properties, 0, sizeof(properties))
    properties.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = s.device
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
    cdef int i
    cdef int status = cu.cuInit(0)
    status = status or cu.cuDeviceGet(&s.device, ordinal)
    status = status or cu.cuDevicePrimaryCtxRetain(&made, s.device)
    if status != cu.CUDA_SUCCESS:
        return status
    for i in range(KINDS):
        s.tables[i] = <Entry *>reserve(GF_HANDLE_SLOT_LIMIT * sizeof(Entry))
    s.staging = <uint8_t *>reserve(SLOT_SIZE * SLOT_COUNT)
    s.buffer = <uint8_t *>malloc(RECEIVE_BUFFER)
    s.order = <Stream *>calloc(1, sizeof(Stream))
    s.reclaim = <Stream *>calloc(1, sizeof(Stream))
    s.open_slot = -1
    s.primary = new_context(s, made)
    s.primary.base.kind = CONTEXT
    s.tables[CONTEXT][0].object = &s.primary.base
    for i in range(SLOT_COUNT):
        s.slots[i].base = s.staging + i * SLOT_SIZE
    status = enter(s, s.primary)
    status = status or cu.cuDeviceGetAttribute(
        &shareable, cu.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, s.device)
    s.shareable = shareable
    status = status or check_granularity(s)
    status = status or reserve_window(s)
    if status != cu.CUDA_SUCCESS:
        return status
    s.mapping_pages = <uint32_t *>reserve((s.window_size >> PAGE_BITS) * sizeof(uint32_t))
    s.mapping_handles = <uint64_t *>reserve((s.window_size >> PAGE_BITS) * sizeof(uint64_t))
    s.mapping_serials = <uint64_t *>reserve((s.window_size >> PAGE_BITS) * sizeof(uint64_t))
    s.mapped = <uint64_t *>reserve(s.window_size >> (PAGE_BITS + 3))
    s.touched = <uint64_t *>reserve(s.window_size >> (PAGE_BITS + 3))
    return furnish_primary(s)


cdef int describe_device(Session *s, gf_device *out) noexcept nogil:
    cdef cu.CUuuid uuid
    cdef size_t total = 0
    cdef size_t limit
    cdef int i, value, status
    cdef int least = 0
    cdef int greatest = 0
    memset(out, 0, sizeof(gf_device))
    status = cu.cuDeviceGetName(out.name, 256, s.device)
    status = status or cu.cuDeviceGetUuid(&uuid, s.device)
    status = status or cu.cuDeviceTotalMem(&total, s.device)
    status = status or enter(s, s.primary)
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
        if cu.cuDeviceGetAttribute(&value, <cu.CUdevice_attribute>i, s.device) == cu.CUDA_SUCCESS:
            out.attributes[i] = value
    for i in range(GF_LIMIT_COUNT):
        limit = 0
        out.limits[i] = -1
        if cu.cuCtxGetLimit(&limit, <cu.CUlimit>i) == cu.CUDA_SUCCESS:
            out.limits[i] = <int64_t>limit
    return cu.CUDA_SUCCESS


cdef bint is_simulated() noexcept nogil:
    return dlsym(RTLD_DEFAULT, b"gpuferry_simulated_device") != NULL
