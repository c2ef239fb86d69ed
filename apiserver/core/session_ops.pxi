# Handlers of the operations that are gpuferry's own (specs/gpuferry/session.yaml). The bytes of a request lie unaligned
# in the receive buffer; the structs are packed, so the compiler knows.


cdef int on_sessionClose(Session *s, Frame *f) noexcept nogil:
    s.input.closed = True
    return cu.CUDA_SUCCESS


cdef int on_sessionUnsupported(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionUnsupported *q = <gf_req_sessionUnsupported *>f.body
    if q.function < GF_FUNCTION_FIRST or q.function > GF_FUNCTION_LAST:
        return cu.CUDA_ERROR_INVALID_VALUE
    s.stats.unsupported[q.function - GF_FUNCTION_FIRST] += q.calls
    return cu.CUDA_SUCCESS


cdef int on_sessionMemMap(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionMemMap *q = <gf_req_sessionMemMap *>f.body
    cdef int status = map_memory(s, q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int on_sessionMemUnmap(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionMemUnmap *q = <gf_req_sessionMemUnmap *>f.body
    cdef int status = unmap_memory(s, q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int on_sessionFence(Session *s, Frame *f) noexcept nogil:
    return fence(s)


cdef int on_sessionImageData(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionImageData q = (<gf_req_sessionImageData *>f.body)[0]
    cdef size_t size = f.size - sizeof(gf_req_sessionImageData)
    if size > GF_CHUNK or q.size == 0 or q.offset > q.size or size > q.size - q.offset:
        return malformed(s, f, b"piece lies outside the image")
    cdef Bytes *image = NULL
    if q.size <= IMAGE_LIMIT:
        image = receive_bytes(s, q.hash, q.size)
    # Pieces come in order; one that does not follow the last belongs to an image that is known already.
    if image == NULL or image.size != q.size or image.received != q.offset:
        return read_payload(s, NULL, size) or (cu.CUDA_ERROR_OUT_OF_MEMORY if image == NULL else 0)
    cdef int status = read_payload(s, image.data + q.offset, size)
    image.received += size
    return status


cdef int on_sessionLoadImage(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionLoadImage *q = <gf_req_sessionLoadImage *>f.body
    cdef int kind = <int>gf_handle_kind(q.handle)
    cdef Bytes *image
    cdef Task *task
    if kind != MODULE and kind != LIBRARY:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if kind == MODULE and f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    f.reply_size = sizeof(gf_rep_sessionLoadImage)
    memset(f.reply, 0, f.reply_size)
    pthread_mutex_lock(&s.lock)
    image = find_bytes(s, q.hash)
    if image != NULL and (image.received < image.size or image.size != q.size):
        image = NULL
    if image != NULL:
        image.users += 1
    pthread_mutex_unlock(&s.lock)
    if image == NULL:
        reply(s, f, cu.CUDA_SUCCESS, 0, NO_PIECE)   # known = 0: the guest sends it and asks again
        return DEFERRED
    task = new_task(TASK_LOAD, f, s.device.primary)
    task.image = image
    task.handle = q.handle
    submit(s, NULL, task)
    return DEFERRED


cdef int on_sessionGetFunction(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionGetFunction *q = <gf_req_sessionGetFunction *>f.body
    cdef int kind = <int>gf_handle_kind(q.function)
    cdef Image *owner = <Image *>find_any(s, q.owner, MODULE, LIBRARY)
    cdef Image *table = owner
    if owner == NULL or (kind != FUNCTION and kind != KERNEL):
        return cu.CUDA_ERROR_INVALID_HANDLE
    if owner.parent != NULL:
        table = owner.parent
    if kind == KERNEL and owner.base.kind != LIBRARY:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if q.index >= table.kernels.size():
        return cu.CUDA_ERROR_NOT_FOUND
    cdef Function *function = <Function *>calloc(1, sizeof(Function))
    function.owner = owner
    function.kernel = table.kernels[0][q.index]
    function.cu = function.kernel.function
    cdef int status = put(s, q.function, kind, &function.base, owner.base.context)
    if status != cu.CUDA_SUCCESS:
        free(function)
    return status


cdef int on_sessionGetModule(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionGetModule *q = <gf_req_sessionGetModule *>f.body
    cdef Image *library = <Image *>find(s, q.library, LIBRARY)
    cdef Image *image
    cdef int status
    if library == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    image = new_image()
    image.parent = library
    status = cu.cuLibraryGetModule(&image.module, library.library)
    status = status or put(s, q.module, MODULE, &image.base, f.context)
    if status != cu.CUDA_SUCCESS:
        free_image(image)
    else:
        note_use(s, f, &library.base)
    return status


cdef int on_sessionGetGlobal(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionGetGlobal *q = <gf_req_sessionGetGlobal *>f.body
    cdef gf_rep_sessionGetGlobal *out = <gf_rep_sessionGetGlobal *>f.reply
    cdef Image *owner = <Image *>find_any(s, q.owner, MODULE, LIBRARY)
    cdef size_t length = f.size - sizeof(gf_req_sessionGetGlobal)
    cdef char name[4096]
    cdef cu.CUdeviceptr address = 0
    cdef size_t size = 0
    cdef int status
    memset(f.reply, 0, sizeof(gf_rep_sessionGetGlobal))
    f.reply_size = sizeof(gf_rep_sessionGetGlobal)
    if owner == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    if length == 0 or length >= sizeof(name):
        return cu.CUDA_ERROR_NOT_FOUND
    memcpy(name, f.body + sizeof(gf_req_sessionGetGlobal), length)
    name[length] = 0
    if owner.module != NULL:
        status = cu.cuModuleGetGlobal(&address, &size, owner.module, name)
    else:
        status = cu.cuLibraryGetGlobal(&address, &size, owner.library, name)
        if status == cu.CUDA_SUCCESS:
            note_use(s, f, &owner.base)
    if status == cu.CUDA_SUCCESS:
        out.address = address
        out.size = size
        hand_out(s, owner, address, size)
    return status


cdef void rows_copy(cu.CUDA_MEMCPY2D *copy, size_t width, size_t rows) noexcept nogil:
    memset(copy, 0, sizeof(cu.CUDA_MEMCPY2D))
    copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.WidthInBytes = width
    copy.Height = rows


cdef int on_sessionCopyIn(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionCopyIn q = (<gf_req_sessionCopyIn *>f.body)[0]
    cdef size_t size = f.size - sizeof(gf_req_sessionCopyIn)
    cdef Stream *stream
    cdef Piece piece
    cdef cu.CUDA_MEMCPY2D copy
    cdef int status
    if size > GF_CHUNK or (q.width != 0 and q.rows > size // q.width) or q.width * q.rows != size:
        return malformed(s, f, b"payload is not rows times width")
    status = cu.CUDA_SUCCESS
    if not may_touch_rows(s, q.address, q.pitch, q.width, q.rows):
        status = cu.CUDA_ERROR_INVALID_VALUE
    status = status or use_stream(s, f, q.stream, &stream)
    if status != cu.CUDA_SUCCESS or size == 0:
        return read_payload(s, NULL, size) or status
    status = take_piece(s, size, stream, &piece)
    status = status or read_payload(s, piece.data, size)
    if status == ENDED:
        return status
    enter(s, f.context)
    if q.rows == 1 or q.pitch == q.width:
        status = cu.cuMemcpyHtoDAsync(q.address, piece.data, size, stream.cu)
    else:
        rows_copy(&copy, q.width, q.rows)
        copy.srcMemoryType = cu.CU_MEMORYTYPE_HOST
        copy.srcHost = piece.data
        copy.srcPitch = q.width
        copy.dstDevice = q.address
        copy.dstPitch = q.pitch
        status = cu.cuMemcpy2DAsync(&copy, stream.cu)
    # cuMemcpyHtoD comes here too, and on a real device its data is there when it returns, also for streams that do not
    # wait for this legacy one.
    if status == cu.CUDA_SUCCESS and stream == stream.base.context.legacy:
        if stream.base.context.nonblocking > 0 or s.device.contexts > 0:
            status = join(s, stream, s.streams.order) or publish(s)
            stream.epoch = s.streams.epoch
        else:
            stream.base.context.uncovered = True
            stream.base.context.noted = False
    return status


cdef int on_sessionCopyOut(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionCopyOut *q = <gf_req_sessionCopyOut *>f.body
    cdef uint64_t size
    cdef Stream *stream
    cdef Piece piece
    cdef cu.CUDA_MEMCPY2D copy
    cdef Task *task
    cdef int status
    if q.width > GF_CHUNK or q.rows > GF_CHUNK or q.width * q.rows > GF_CHUNK:
        return malformed(s, f, b"more than one chunk asked for")
    size = q.width * q.rows
    if not may_touch_rows(s, q.address, q.pitch, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    status = use_stream(s, f, q.stream, &stream)
    if status != cu.CUDA_SUCCESS or size == 0:
        return status
    status = take_piece(s, size, stream, &piece)
    if status != cu.CUDA_SUCCESS:
        return status
    enter(s, f.context)
    if q.rows == 1 or q.pitch == q.width:
        status = cu.cuMemcpyDtoHAsync(piece.data, q.address, size, stream.cu)
    else:
        rows_copy(&copy, q.width, q.rows)
        copy.srcDevice = q.address
        copy.srcPitch = q.pitch
        copy.dstMemoryType = cu.CU_MEMORYTYPE_HOST
        copy.dstHost = piece.data
        copy.dstPitch = q.width
        status = cu.cuMemcpy2DAsync(&copy, stream.cu)
    if status != cu.CUDA_SUCCESS:
        return status
    task = new_task(TASK_COPY_OUT, f, stream.base.context)
    enter(s, task.context)
    task.event = take_event(s, task.context)
    status = cu.cuEventRecord(task.event, stream.cu)
    if status != cu.CUDA_SUCCESS:
        give_event(s, task.context, task.event)
        free(task)
        return status
    task.piece = piece
    task.size = size
    hold_piece(s, &piece)
    expect(s, task)
    submit(s, stream.lane, task)
    return DEFERRED


cdef int on_sessionCopy(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionCopy *q = <gf_req_sessionCopy *>f.body
    cdef Stream *stream
    cdef cu.CUDA_MEMCPY2D copy
    if not may_touch_rows(s, q.target, q.target_pitch, q.width, q.rows) \
            or not may_touch_rows(s, q.source, q.source_pitch, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    cdef int status = use_stream(s, f, q.stream, &stream)
    if status != cu.CUDA_SUCCESS or q.width == 0 or q.rows == 0:
        return status
    if q.rows == 1 or (q.target_pitch == q.width and q.source_pitch == q.width):
        return cu.cuMemcpyDtoDAsync(q.target, q.source, q.width * q.rows, stream.cu)
    rows_copy(&copy, q.width, q.rows)
    copy.srcDevice = q.source
    copy.srcPitch = q.source_pitch
    copy.dstDevice = q.target
    copy.dstPitch = q.target_pitch
    return cu.cuMemcpy2DAsync(&copy, stream.cu)


cdef int on_sessionFill(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionFill *q = <gf_req_sessionFill *>f.body
    cdef Stream *stream
    cdef uint64_t count
    if q.element != 1 and q.element != 2 and q.element != 4:
        return cu.CUDA_ERROR_INVALID_VALUE
    if q.width > s.window.size or q.address % q.element != 0 \
            or not may_touch_rows(s, q.address, q.pitch, q.width * q.element, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    cdef int status = use_stream(s, f, q.stream, &stream)
    if status != cu.CUDA_SUCCESS or q.width == 0 or q.rows == 0:
        return status
    if q.rows == 1 or q.pitch == q.width * q.element:
        count = q.width * q.rows
        if q.element == 1:
            return cu.cuMemsetD8Async(q.address, <unsigned char>q.value, count, stream.cu)
        if q.element == 2:
            return cu.cuMemsetD16Async(q.address, <unsigned short>q.value, count, stream.cu)
        return cu.cuMemsetD32Async(q.address, q.value, count, stream.cu)
    if q.element == 1:
        return cu.cuMemsetD2D8Async(q.address, q.pitch, <unsigned char>q.value, q.width, q.rows, stream.cu)
    if q.element == 2:
        return cu.cuMemsetD2D16Async(q.address, q.pitch, <unsigned short>q.value, q.width, q.rows, stream.cu)
    return cu.cuMemsetD2D32Async(q.address, q.pitch, q.value, q.width, q.rows, stream.cu)


cdef bint attribute_carries_no_handle(uint32_t id) noexcept nogil:
    return (id == cu.CU_LAUNCH_ATTRIBUTE_COOPERATIVE or id == cu.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
            or id == cu.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            or id == cu.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            or id == cu.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            or id == cu.CU_LAUNCH_ATTRIBUTE_PRIORITY or id == cu.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
            or id == cu.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            or id == cu.CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
            or id == cu.CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)


cdef int launch_attributes(const uint8_t *source, uint32_t count, cu.CUlaunchAttribute *target) noexcept nogil:
    """The attributes as the driver takes them. Those that name streams, events or addresses are not carried."""
    cdef const gf_launch_attribute *asked = <const gf_launch_attribute *>source
    cdef uint32_t i
    if count > LAUNCH_ATTRIBUTES:
        return cu.CUDA_ERROR_INVALID_VALUE
    for i in range(count):
        if not attribute_carries_no_handle(asked[i].id):
            return cu.CUDA_ERROR_NOT_SUPPORTED
        memcpy(&target[i], &asked[i], sizeof(gf_launch_attribute))
    return cu.CUDA_SUCCESS


cdef int on_sessionLaunch(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionLaunch *q = <gf_req_sessionLaunch *>f.body
    cdef const uint8_t *params = f.body + sizeof(gf_req_sessionLaunch)
    cdef size_t size = q.params
    cdef cu.CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES]
    cdef cu.CUlaunchConfig config
    cdef Function *function
    cdef Stream *stream
    cdef void *extra[5]
    cdef int status
    if f.size - sizeof(gf_req_sessionLaunch) != \
            <uint64_t>q.params + <uint64_t>q.attributes * sizeof(gf_launch_attribute):
        return malformed(s, f, b"payload is not the parameters and attributes announced")
    status = find_function(s, f, q.function, &function)
    if status == cu.CUDA_SUCCESS and size < function.kernel.param_bytes:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = status or launch_attributes(params + size, q.attributes, attributes)
    status = status or use_stream(s, f, q.stream, &stream)
    if status == cu.CUDA_SUCCESS and stream == f.context.legacy and f.context.uncovered:
        status = note_copies(s, f.context)      # the kernel may run on and on: it is not to be waited for
    if status != cu.CUDA_SUCCESS:
        return status
    extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER
    extra[1] = <void *>params
    extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE
    extra[3] = &size
    extra[4] = CU_LAUNCH_PARAM_END
    s.stats.launches += 1
    if s.journal.tailing:
        note_touched(s, params, size)
    expect_output(s)
    if q.attributes == 0:
        return cu.cuLaunchKernel(function.cu, q.grid[0], q.grid[1], q.grid[2], q.block[0], q.block[1], q.block[2],
                                 q.shared, stream.cu, NULL, extra)
    fill_config(&config, q.grid, q.block, q.shared, attributes, q.attributes)
    config.hStream = stream.cu
    return cu.cuLaunchKernelEx(&config, function.cu, NULL, extra)


cdef void fill_config(cu.CUlaunchConfig *config, const uint32_t *grid, const uint32_t *block, uint32_t shared,
                      cu.CUlaunchAttribute *attributes, uint32_t count) noexcept nogil:
    memset(config, 0, sizeof(cu.CUlaunchConfig))
    config.gridDimX = grid[0]
    config.gridDimY = grid[1]
    config.gridDimZ = grid[2]
    config.blockDimX = block[0]
    config.blockDimY = block[1]
    config.blockDimZ = block[2]
    config.sharedMemBytes = shared
    config.attrs = attributes
    config.numAttrs = count


cdef int on_sessionOccupancyClusters(Session *s, Frame *f) noexcept nogil:
    cdef gf_req_sessionOccupancyClusters *q = <gf_req_sessionOccupancyClusters *>f.body
    cdef gf_rep_sessionOccupancyClusters *out = <gf_rep_sessionOccupancyClusters *>f.reply
    cdef cu.CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES]
    cdef cu.CUlaunchConfig config
    cdef Function *function
    cdef Stream *stream
    cdef int result = 0
    cdef int status
    if f.size - sizeof(gf_req_sessionOccupancyClusters) != <uint64_t>q.attributes * sizeof(gf_launch_attribute):
        return malformed(s, f, b"payload is not the attributes announced")
    f.reply_size = sizeof(gf_rep_sessionOccupancyClusters)
    out.result = 0
    status = find_function(s, f, q.function, &function)
    status = status or launch_attributes(f.body + sizeof(gf_req_sessionOccupancyClusters), q.attributes, attributes)
    status = status or find_stream(s, f, q.stream, &stream)
    if status != cu.CUDA_SUCCESS:
        return status
    fill_config(&config, q.grid, q.block, q.shared, attributes, q.attributes)
    config.hStream = stream.cu
    if q.largest_size:
        status = cu.cuOccupancyMaxPotentialClusterSize(&result, function.cu, &config)
    else:
        status = cu.cuOccupancyMaxActiveClusters(&result, function.cu, &config)
    out.result = result
    return status
