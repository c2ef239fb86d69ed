# Handlers of the operations that are gpuferry's own (specs/gpuferry/session.yaml). The bytes of a request lie unaligned
# in the receive buffer; the structs are packed, so the compiler knows.


cdef int sessionClose_call(Session *s, Frame *f) noexcept nogil:
    s.input.closed = True
    return cu.CUDA_SUCCESS


cdef int sessionUnsupported_call(Session *s, Frame *f, gf_req_sessionUnsupported *q) noexcept nogil:
    if q.function < GF_FUNCTION_FIRST or q.function > GF_FUNCTION_LAST:
        return cu.CUDA_ERROR_INVALID_VALUE
    s.stats.unsupported[q.function - GF_FUNCTION_FIRST] += q.calls
    return cu.CUDA_SUCCESS


cdef int sessionMemMap_call(Session *s, Frame *f, gf_req_sessionMemMap *q) noexcept nogil:
    cdef int status = map_memory(s, s.device.shown[0], q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemMapOn_call(Session *s, Frame *f, gf_req_sessionMemMapOn *q) noexcept nogil:
    cdef int status = map_memory(s, s.device.shown[q.device], q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemAccessOn_call(Session *s, Frame *f, gf_req_sessionMemAccessOn *q) noexcept nogil:
    cdef int status = permit(s, s.device.shown[q.device], q.address, q.size, q.access)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionReach_call(Session *s, Frame *f, gf_req_sessionReach *q) noexcept nogil:
    cdef int status = reach_pools(s, s.device.shown[q.device], s.device.shown[q.owner])
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionDevices_call(Session *s, Frame *f, gf_req_sessionDevices *q) noexcept nogil:
    cdef int status = choose_devices(s, q.order, q.count)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemoryClaim_call(Session *s, Frame *f, gf_req_sessionMemoryClaim *q, uint64_t *credit,
                                 uint64_t *left) noexcept nogil:
    return claim_memory(s, s.device.shown[0], q.wanted, credit, left)


cdef int sessionMemoryClaimOn_call(Session *s, Frame *f, gf_req_sessionMemoryClaimOn *q, uint64_t *credit,
                                   uint64_t *left) noexcept nogil:
    return claim_memory(s, s.device.shown[q.device], q.wanted, credit, left)


cdef int sessionMemoryKeep_call(Session *s, Frame *f, gf_req_sessionMemoryKeep *q) noexcept nogil:
    keep_memory(s, s.device.shown[0], q.credit)
    return cu.CUDA_SUCCESS


cdef int sessionMemoryKeepOn_call(Session *s, Frame *f, gf_req_sessionMemoryKeepOn *q) noexcept nogil:
    keep_memory(s, s.device.shown[q.device], q.credit)
    return cu.CUDA_SUCCESS


cdef int sessionMemUnmap_call(Session *s, Frame *f, gf_req_sessionMemUnmap *q) noexcept nogil:
    cdef int status = unmap_memory(s, q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemAlias_call(Session *s, Frame *f, gf_req_sessionMemAlias *q) noexcept nogil:
    cdef int status = alias_memory(s, q.address, q.size, q.home)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemUnalias_call(Session *s, Frame *f, gf_req_sessionMemUnalias *q) noexcept nogil:
    cdef int status = unalias_memory(s, q.address, q.size)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionMemAccess_call(Session *s, Frame *f, gf_req_sessionMemAccess *q) noexcept nogil:
    cdef int status = permit(s, NULL, q.address, q.size, q.access)
    if status == cu.CUDA_SUCCESS:
        follow(s, f)
    return status


cdef int sessionFence_call(Session *s, Frame *f) noexcept nogil:
    return fence(s, gpu_in(s, f.context))


cdef int sessionImageData_call(Session *s, Frame *f, gf_req_sessionImageData *q, size_t size) noexcept nogil:
    if q.offset > q.size or size > q.size - q.offset:
        return malformed(s, f, b"piece lies outside the image")
    cdef Bytes *image = NULL
    cdef int status
    if q.size <= IMAGE_LIMIT:
        image = receive_bytes(s, q.hash, q.size)
    if image == NULL:
        return read_payload(s, NULL, size) or cu.CUDA_ERROR_OUT_OF_MEMORY
    # Pieces come in order; one that does not follow the last belongs to an image that is known already.
    if image.size != q.size or image.received != q.offset:
        status = read_payload(s, NULL, size)
    else:
        status = read_payload(s, image.data + q.offset, size)
        image.received += size
    end_receiving(s, image)
    return status


cdef int on_sessionLoadImage(Session *s, Frame *f, gf_req_sessionLoadImage *q,
                             gf_rep_sessionLoadImage *out) noexcept nogil:
    cdef int kind = <int>gf_handle_kind(q.handle)
    cdef Bytes *image
    cdef Task *task
    if kind != MODULE and kind != LIBRARY:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if kind == MODULE and f.context == NULL:
        return cu.CUDA_ERROR_INVALID_CONTEXT
    image = borrow_bytes(s, q.hash, q.size)
    if image == NULL:
        reply(s, f, cu.CUDA_SUCCESS, 0, NO_PIECE)   # known = 0: the guest sends it and asks again
        return DEFERRED
    task = new_task(TASK_LOAD, f, s.device.primary)
    task.image = image
    task.handle = q.handle
    submit_load(s, task)
    return DEFERRED


cdef int on_sessionGetFunction(Session *s, Frame *f, gf_req_sessionGetFunction *q, Image *owner) noexcept nogil:
    cdef int kind = <int>gf_handle_kind(q.function)
    cdef Image *table = owner
    if kind != FUNCTION and kind != KERNEL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if owner.parent != NULL:
        table = owner.parent
    if kind == KERNEL and owner.base.kind != LIBRARY:
        return cu.CUDA_ERROR_INVALID_HANDLE
    if q.index >= table.kernels.size():
        return cu.CUDA_ERROR_NOT_FOUND
    cdef Function *function = <Function *>calloc(1, sizeof(Function))
    function.kernel = table.kernels[0][q.index]
    function.cu = function.kernel.function
    cdef int status = put_under(s, q.function, kind, &function.base, owner.base.context, &owner.base)
    if status != cu.CUDA_SUCCESS:
        free(function)
    return status


cdef int on_sessionGetModule(Session *s, Frame *f, gf_req_sessionGetModule *q, Image *library) noexcept nogil:
    cdef Image *image = new_image()
    await_loads(s)
    cdef int status = cu.cuLibraryGetModule(&image.module, library.library)
    status = status or put(s, q.module, MODULE, &image.base, f.context)
    if status != cu.CUDA_SUCCESS:
        free_image(image)
    else:
        link_module(image, library)
        note_use(s, f, &library.base)
    return status


cdef int sessionGetGlobal_call(Session *s, Frame *f, gf_req_sessionGetGlobal *q, Image *owner, const uint8_t *text,
                               size_t length, uint64_t *address, uint64_t *size) noexcept nogil:
    cdef char name[4096]
    cdef int status
    if not text_of(text, length, name, sizeof(name)):
        return cu.CUDA_ERROR_NOT_FOUND
    if owner.module != NULL:
        status = cu.cuModuleGetGlobal(<cu.CUdeviceptr *>address, <size_t *>size, owner.module, name)
    else:
        await_loads(s)
        status = cu.cuLibraryGetGlobal(<cu.CUdeviceptr *>address, <size_t *>size, owner.library, name)
        if status == cu.CUDA_SUCCESS:
            note_use(s, f, &owner.base)
    if status == cu.CUDA_SUCCESS:
        hand_out(s, owner, address[0], size[0])
    return status


cdef int sessionGetManaged_call(Session *s, Frame *f, gf_req_sessionGetManaged *q, Image *owner, const uint8_t *text,
                                size_t length, uint64_t *address, uint64_t *size, uint64_t *base,
                                uint64_t *extent) noexcept nogil:
    cdef char name[4096]
    cdef int status
    if not text_of(text, length, name, sizeof(name)):
        return cu.CUDA_ERROR_NOT_FOUND
    if owner.module != NULL:
        status = cu.cuModuleGetGlobal(<cu.CUdeviceptr *>address, <size_t *>size, owner.module, name)
    else:
        await_loads(s)
        status = cu.cuLibraryGetManaged(<cu.CUdeviceptr *>address, <size_t *>size, owner.library, name)
    status = status or managed_block(address[0], base, extent)
    if status == cu.CUDA_SUCCESS:
        if owner.module == NULL:
            note_use(s, f, &owner.base)
        hand_out(s, owner, base[0], extent[0])
    return status


cdef inline bint rows_overlap(uint64_t pitch, uint64_t width, uint64_t rows) noexcept nogil:
    """What the spec has no word for: rows lie behind each other."""
    return rows > 1 and pitch < width


cdef void rows_copy(cu.CUDA_MEMCPY2D *copy, size_t width, size_t rows) noexcept nogil:
    memset(copy, 0, sizeof(cu.CUDA_MEMCPY2D))
    copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.WidthInBytes = width
    copy.Height = rows


cdef int copy_rows_in(uint64_t address, uint64_t pitch, const uint8_t *data, size_t width, size_t rows,
                      cu.CUstream stream) noexcept nogil:
    cdef cu.CUDA_MEMCPY2D copy
    if rows == 1 or pitch == width:
        return cu.cuMemcpyHtoDAsync(address, data, width * rows, stream)
    rows_copy(&copy, width, rows)
    copy.srcMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.srcHost = <void *>data
    copy.srcPitch = width
    copy.dstDevice = address
    copy.dstPitch = pitch
    return cu.cuMemcpy2DAsync(&copy, stream)


cdef int copied_in(Session *s, uint64_t named, Stream *stream) noexcept nogil:
    """cuMemcpyHtoD comes here too, and on a real device its data is there when it returns, also for streams that do
    not wait for this legacy one. By the number 1 that is named for copies that CUDA leaves under way."""
    cdef int status
    if stream != stream.base.context.legacy or named == <uint64_t>cu.CU_STREAM_LEGACY:
        return cu.CUDA_SUCCESS
    cdef Gpu *gpu = stream.base.context.gpu
    if stream.base.context.nonblocking > 0 or s.device.contexts > 0 or s.device.count > 1:
        status = join(s, stream, gpu.order) or publish(s, gpu)
        stream.epoch = gpu.epoch
        return status
    stream.base.context.uncovered = True
    stream.base.context.noted = False
    return cu.CUDA_SUCCESS


cdef int answer_copy(Session *s, Frame *f, Stream *stream, Piece piece, size_t size) noexcept nogil:
    """What the stream's last copy puts into the piece is the answer, once it is there."""
    cdef Task *task = new_task(TASK_COPY_OUT, f, stream.base.context)
    cdef int status
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


cdef int sessionCopyIn_call(Session *s, Frame *f, gf_req_sessionCopyIn *q, Stream *stream) noexcept nogil:
    cdef size_t size = q.rows * q.width
    cdef Piece piece
    cdef int status = cu.CUDA_SUCCESS
    if rows_overlap(q.pitch, q.width, q.rows):
        return read_payload(s, NULL, size) or cu.CUDA_ERROR_INVALID_VALUE
    status = take_piece(s, size, stream, &piece)
    status = status or read_payload(s, piece.data, size)
    if status == ENDED:
        return status
    enter(s, f.context)
    status = copy_rows_in(q.address, q.pitch, piece.data, q.width, q.rows, stream.cu)
    return status or copied_in(s, q.stream, stream)


cdef int sessionCopyOut_call(Session *s, Frame *f, gf_req_sessionCopyOut *q, Stream *stream) noexcept nogil:
    cdef uint64_t size = q.width * q.rows
    cdef Piece piece
    cdef cu.CUDA_MEMCPY2D copy
    cdef int status
    if rows_overlap(q.pitch, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
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
    return status or answer_copy(s, f, stream, piece, size)


cdef int sessionCopy_call(Session *s, Frame *f, gf_req_sessionCopy *q, Stream *stream) noexcept nogil:
    cdef cu.CUDA_MEMCPY2D copy
    if rows_overlap(q.target_pitch, q.width, q.rows) or rows_overlap(q.source_pitch, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    if q.rows == 1 or (q.target_pitch == q.width and q.source_pitch == q.width):
        return cu.cuMemcpyDtoDAsync(q.target, q.source, q.width * q.rows, stream.cu)
    rows_copy(&copy, q.width, q.rows)
    copy.srcDevice = q.source
    copy.srcPitch = q.source_pitch
    copy.dstDevice = q.target
    copy.dstPitch = q.target_pitch
    return cu.cuMemcpy2DAsync(&copy, stream.cu)


cdef int sessionFill_call(Session *s, Frame *f, gf_req_sessionFill *q, Stream *stream) noexcept nogil:
    cdef uint64_t count
    if q.element == 3 or q.address % q.element != 0 or rows_overlap(q.pitch, q.width * q.element, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
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


cdef int launch_attributes(Session *s, Frame *f, const uint8_t *source, uint32_t count,
                           cu.CUlaunchAttribute *target) noexcept nogil:
    """The attributes as the driver takes them: types.yaml says which are carried. Events the guest records itself."""
    cdef gf_decoder d
    cdef uint32_t i
    cdef int status = cu.CUDA_SUCCESS
    if count > LAUNCH_ATTRIBUTES:
        return cu.CUDA_ERROR_INVALID_VALUE
    begin_codec(s, f, &d, f.size)
    for i in range(count):
        status = status or gf_decode_CUlaunchAttribute(&d, source + i * sizeof(gf_launch_attribute), &target[i])
        if status == cu.CUDA_SUCCESS and (target[i].id == cu.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                                          or target[i].id == cu.CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT):
            status = cu.CUDA_ERROR_NOT_SUPPORTED
    status = codec_status(s, f, &d, status)
    gf_decoder_end(&d)
    return status or (cu.CUDA_ERROR_INVALID_VALUE if f.lacking else cu.CUDA_SUCCESS)


cdef int sessionLaunch_call(Session *s, Frame *f, gf_req_sessionLaunch *q, Function *function, Stream *stream,
                            const uint8_t *params) noexcept nogil:
    cdef size_t size = q.params
    cdef cu.CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES]
    cdef cu.CUlaunchConfig config
    cdef void *extra[5]
    cdef int status
    if size < function.kernel.param_bytes:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = launch_attributes(s, f, params + size, q.attributes, attributes)
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
    note_work(s)
    if s.journal.tailing:
        note_touched(s, params, size)
    expect_output(s)
    if q.attributes == 0:
        return cu.cuLaunchKernel(function.cu, q.grid[0], q.grid[1], q.grid[2], q.block[0], q.block[1], q.block[2],
                                 q.shared, stream.cu, NULL, extra)
    fill_config(&config, &q.grid, q.shared, attributes, q.attributes)
    config.hStream = stream.cu
    return cu.cuLaunchKernelEx(&config, function.cu, NULL, extra)


cdef void fill_config(cu.CUlaunchConfig *config, const void *grid_and_block, uint32_t shared,
                      cu.CUlaunchAttribute *attributes, uint32_t count) noexcept nogil:
    cdef uint32_t shape[6]              # a frame's numbers are not aligned
    memcpy(shape, grid_and_block, sizeof(shape))
    memset(config, 0, sizeof(cu.CUlaunchConfig))
    config.gridDimX = shape[0]
    config.gridDimY = shape[1]
    config.gridDimZ = shape[2]
    config.blockDimX = shape[3]
    config.blockDimY = shape[4]
    config.blockDimZ = shape[5]
    config.sharedMemBytes = shared
    config.attrs = attributes
    config.numAttrs = count


cdef int sessionOccupancyClusters_call(Session *s, Frame *f, gf_req_sessionOccupancyClusters *q, Function *function,
                                       Stream *stream, const uint8_t *asked, int *result) noexcept nogil:
    cdef cu.CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES]
    cdef cu.CUlaunchConfig config
    cdef int status = launch_attributes(s, f, asked, q.attributes, attributes)
    if status != cu.CUDA_SUCCESS:
        return status
    fill_config(&config, &q.grid, q.shared, attributes, q.attributes)
    config.hStream = stream.cu
    if q.largest_size:
        return cu.cuOccupancyMaxPotentialClusterSize(result, function.cu, &config)
    return cu.cuOccupancyMaxActiveClusters(result, function.cu, &config)
