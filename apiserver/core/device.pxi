# The devices: the contexts, window and staging that this process makes once, and what WELCOME tells a guest of them.

cdef enum:
    MINIMUM_DRIVER = 12080      # every driver function used here exists since then


cdef inline Gpu *gpu_at_place(Session *s, int place) noexcept nogil:
    return &s.device.gpus[place]


cdef int check_granularity(Gpu *gpu) noexcept nogil:
    cdef cu.CUmemAllocationProp properties
    cdef size_t granularity = 0
    memset(&properties, 0, sizeof(properties))
    properties.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = gpu.cu
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


cdef int start_gpu(Session *s, Gpu *gpu, int ordinal) noexcept nogil:
    cdef cu.CUcontext made
    cdef int shareable = 0
    cdef int status = cu.cuDeviceGet(&gpu.cu, ordinal)
    status = status or cu.cuDevicePrimaryCtxRetain(&made, gpu.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    gpu.primary = new_context(s, gpu, made)
    gpu.primary.base.kind = CONTEXT
    status = enter(s, gpu.primary)
    status = status or cu.cuDeviceGetAttribute(
        &shareable, cu.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, gpu.cu)
    gpu.shareable = shareable
    return status or check_granularity(gpu)


cdef int start_devices(Session *s, const vector[int] *ordinals) noexcept nogil:
    cdef int status = cu.cuInit(0)
    reserve_tables(s)
    reserve_staging(s)
    reserve_input(s)
    s.device.count = <int>ordinals.size()
    for i in range(s.device.count):
        gpu_at_place(s, i).place = i
        reserve_order(gpu_at_place(s, i))
        status = status or start_gpu(s, gpu_at_place(s, i), ordinals[0][i])
    if status != cu.CUDA_SUCCESS:
        return status
    s.device.primary = gpu_at_place(s, 0).primary
    status = enter(s, s.device.primary)
    status = status or reserve_window(s)
    for i in range(s.device.count):
        status = status or furnish_primary(s, gpu_at_place(s, i))
    return status


cdef bint has_device(Session *s, int number) noexcept nogil:
    """Whether the guest's program sees a device with this number."""
    return 0 <= number < s.device.visible


cdef inline cu.CUdevice device_of(Session *s, int number) noexcept nogil:
    return s.device.shown[number].cu


cdef int number_of(Session *s, Gpu *gpu) noexcept nogil:
    """The number by which the guest's program knows the device; -1: it does not see it."""
    cdef int i
    for i in range(s.device.visible):
        if s.device.shown[i] == gpu:
            return i
    return -1


cdef Gpu *gpu_of(Session *s, cu.CUdevice device) noexcept nogil:
    """The driver's device, which is one of this process's."""
    cdef int i
    for i in range(1, s.device.count):
        if gpu_at_place(s, i).cu == device:
            return gpu_at_place(s, i)
    return gpu_at_place(s, 0)


cdef inline Gpu *gpu_in(Session *s, Context *context) noexcept nogil:
    """Where a call is at work that names no device; without a context, the first that its program sees."""
    return context.gpu if context != NULL else s.device.shown[0]


cdef void show_devices(Session *s, const uint8_t *order, int count) noexcept nogil:
    """The guest numbers them like this; their primary contexts have its first handles."""
    cdef int i
    s.device.visible = count
    for i in range(count):
        s.device.shown[i] = gpu_at_place(s, order[i])
    put_primaries(s)


cdef int choose_devices(Session *s, const uint8_t *order, uint32_t count) noexcept nogil:
    """Once, and before the guest has contexts of its own: from then on its numbers mean these."""
    cdef uint32_t i
    cdef uint64_t seen = 0
    cdef bint same = count == <uint32_t>s.device.visible
    for i in range(count):
        same = same and i < GF_DEVICES_MAX and order[i] == s.device.shown[i].place
    if same:
        return cu.CUDA_SUCCESS
    if s.device.chosen or count == 0 or count > <uint32_t>s.device.count or s.device.contexts > 0:
        return cu.CUDA_ERROR_INVALID_VALUE
    for i in range(count):
        if order[i] >= s.device.count or seen >> order[i] & 1:
            return cu.CUDA_ERROR_INVALID_VALUE
        seen |= <uint64_t>1 << order[i]
    s.device.chosen = True
    show_devices(s, order, <int>count)
    return cu.CUDA_SUCCESS


cdef int describe_links(Session *s, vector[gf_device_link] *out) noexcept nogil:
    """From each device to each: what the driver says of the two, where they are several."""
    cdef int i, j, attribute, value
    cdef gf_device_link link
    cdef int status = cu.CUDA_SUCCESS
    for i in range(s.device.count if s.device.count > 1 else 0):
        for j in range(s.device.count):
            memset(&link, 0, sizeof(link))
            link.attributes[0] = -1
            if i != j:
                value = 0
                status = status or cu.cuDeviceCanAccessPeer(&value, gpu_at_place(s, i).cu, gpu_at_place(s, j).cu)
                link.can_access = value
            for attribute in range(1, GF_LINK_ATTRIBUTE_COUNT if i != j else 0):
                value = 0
                if cu.cuDeviceGetP2PAttribute(&value, <cu.CUdevice_P2PAttribute>attribute, gpu_at_place(s, i).cu,
                                              gpu_at_place(s, j).cu) == cu.CUDA_SUCCESS:
                    link.attributes[attribute] = value
                else:
                    link.attributes[attribute] = -1
            out.push_back(link)
    return status


cdef bint is_instance() noexcept nogil:
    """Whether this process was given an instance of a divided GPU (MIG); CUDA shows it no other device then."""
    cdef const char *visible = getenv(b"CUDA_VISIBLE_DEVICES")
    return visible != NULL and strncmp(visible, b"MIG-", 4) == 0


cdef int describe_device(Session *s, Gpu *gpu, gf_device *out) noexcept nogil:
    cdef cu.CUuuid uuid
    cdef size_t total = 0
    cdef size_t limit
    cdef int i, value, status
    cdef int least = 0
    cdef int greatest = 0
    memset(out, 0, sizeof(gf_device))
    status = cu.cuDeviceGetName(out.name, 256, gpu.cu)
    status = status or cu.cuDeviceGetUuid(&uuid, gpu.cu)
    status = status or cu.cuDeviceTotalMem(&total, gpu.cu)
    status = status or enter(s, gpu.primary)
    status = status or cu.cuCtxGetStreamPriorityRange(&least, &greatest)
    if status != cu.CUDA_SUCCESS:
        return status
    memcpy(out.uuid, &uuid, 16)
    if is_instance():
        out.name[sizeof(out.name) - 1] = GF_INSTANCE
    out.total_memory = total
    out.stream_priority_least = least
    out.stream_priority_greatest = greatest
    out.attribute_count = GF_ATTRIBUTE_COUNT
    for i in range(GF_ATTRIBUTE_COUNT):
        value = 0
        if cu.cuDeviceGetAttribute(&value, <cu.CUdevice_attribute>i, gpu.cu) == cu.CUDA_SUCCESS:
            out.attributes[i] = value
    for i in range(GF_LIMIT_COUNT):
        limit = 0
        out.limits[i] = -1
        if cu.cuCtxGetLimit(&limit, <cu.CUlimit>i) == cu.CUDA_SUCCESS:
            out.limits[i] = <int64_t>limit
    return cu.CUDA_SUCCESS


cdef bint is_simulated() noexcept nogil:
    return dlsym(RTLD_DEFAULT, b"gpuferry_simulated_device") != NULL


cdef bint loads_machine_code() noexcept nogil:
    cdef void *answer = dlsym(RTLD_DEFAULT, b"gpuferry_simulated_loads_machine_code")
    return (<bint (*)() noexcept nogil>answer)() if answer != NULL else not is_simulated()


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
    cdef uint8_t order[GF_DEVICES_MAX]
    for i in range(s.device.count):
        order[i] = <uint8_t>i
    s.device.chosen = False
    show_devices(s, order, s.device.count)
    s.device.reconfigured = False
