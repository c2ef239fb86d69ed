# CUDA arrays. Only the driver knows where they lie, so no address reaches them: what they hold is counted against the
# quota by what its texels take, cleared when it is new, and copied by boxes of rows (WIRE.md 8).

cdef enum:
    ARRAY_UNIT = 64 << 10       # an array counts as a multiple of this; the guest reckons likewise
    ZEROES_SIZE = 1 << 20

cdef extern from "wire/texel.h" nogil:
    uint64_t gf_texel_bytes(cu.CUarray_format format, unsigned int channels)

cdef uint8_t zeroes[ZEROES_SIZE]


cdef void begin_arrays(Session *s) noexcept nogil:
    if s.arrays.fillers == NULL:
        s.arrays.fillers = new vector[Filler]()
        s.arrays.lacking = new vector[uint64_t]()
    s.arrays.lacking.clear()


cdef uint64_t charge_of(uint64_t bytes) noexcept nogil:
    return gf_plus(bytes, ARRAY_UNIT - 1) // ARRAY_UNIT * ARRAY_UNIT


cdef void measure(Array *array, const cu.CUDA_ARRAY3D_DESCRIPTOR *desc) noexcept nogil:
    array.row = gf_times(desc.Width, gf_texel_bytes(desc.Format, desc.NumChannels))
    array.rows = max(desc.Height, <size_t>1)
    array.layers = max(desc.Depth, <size_t>1)
    array.bytes = gf_times(gf_times(array.row, array.rows), array.layers)


cdef inline bint box_lies_in(Array *array, uint64_t x, uint64_t y, uint64_t z, uint64_t width,
                             uint64_t rows) noexcept nogil:
    return x <= array.row and width <= array.row - x and y <= array.rows and rows <= array.rows - y \
        and z < array.layers


cdef int clear_array(Session *s, Frame *f, Array *array) noexcept nogil:
    """Whatever the driver finds there, the session does not see it. In no stream of the program's: one may be waiting
    for a function of the program."""
    cdef Gpu *gpu = f.context.gpu
    cdef Stream *stream = gpu.order
    cdef Stream aside           # of a context that has none of ours
    cdef cu.CUDA_MEMCPY3D copy
    cdef uint64_t width = min(array.row, <uint64_t>ZEROES_SIZE)
    cdef uint64_t rows = max(<uint64_t>1, ZEROES_SIZE // array.row)
    cdef int status
    if f.context != gpu.primary:
        stream = &aside
        memset(stream, 0, sizeof(Stream))
        stream.base.context = f.context
        status = enter(s, f.context) or cu.cuStreamCreate(&stream.cu, cu.CU_STREAM_NON_BLOCKING)
        if status != cu.CUDA_SUCCESS:
            return status
    status = ready_stream(s, stream)
    memset(&copy, 0, sizeof(copy))
    copy.srcMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.srcHost = zeroes
    copy.srcPitch = width
    copy.dstMemoryType = cu.CU_MEMORYTYPE_ARRAY
    copy.dstArray = array.cu
    copy.Depth = 1
    while copy.dstZ < array.layers and status == cu.CUDA_SUCCESS:
        copy.WidthInBytes = min(width, array.row - copy.dstXInBytes)
        copy.Height = min(rows, array.rows - copy.dstY)
        copy.srcHeight = copy.Height
        status = cu.cuMemcpy3DAsync(&copy, stream.cu)
        copy.dstXInBytes += copy.WidthInBytes
        if copy.dstXInBytes == array.row:
            copy.dstXInBytes = 0
            copy.dstY += copy.Height
        if copy.dstY == array.rows:
            copy.dstY = 0
            copy.dstZ += 1
    if stream != gpu.order:
        status = status or join(s, stream, gpu.order)
        cu.cuStreamDestroy(stream.cu)   # what it was given goes on
    status = status or publish(s, gpu)
    gpu.order.epoch = gpu.epoch
    return status


cdef int on_cuArray3DCreate_v2(Session *s, Frame *f, gf_req_cuArray3DCreate_v2 *q,
                               cu.CUDA_ARRAY3D_DESCRIPTOR *desc) noexcept nogil:
    cdef Array *array = <Array *>calloc(1, sizeof(Array))
    cdef int status
    if array == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    measure(array, desc)
    array.bytes = charge_of(array.bytes)
    if array.row == 0 or not admit_behind_work(s, f.context.gpu, array.bytes):
        status = cu.CUDA_ERROR_OUT_OF_MEMORY if array.row > 0 else cu.CUDA_ERROR_INVALID_VALUE
        free(array)
        return status
    status = enter(s, f.context)
    status = status or cu.cuArray3DCreate(&array.cu, desc)
    if status == cu.CUDA_SUCCESS:
        status = clear_array(s, f, array)
        status = status or put(s, q.pHandle, ARRAY, &array.base, f.context)
        if status == cu.CUDA_SUCCESS:
            return status
        cu.cuArrayDestroy(array.cu)
    discharge(s, f.context.gpu, array.bytes)
    free(array)
    return status


cdef int find_array(Session *s, Frame *f, uint64_t handle, Array **found) noexcept nogil:
    found[0] = <Array *>find(s, handle, ARRAY)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef int drop_array(Session *s, Array *array) noexcept nogil:
    """The driver waits for the work that may use it, as cuArrayDestroy does. A level ends with the driver's whole."""
    cdef int status = enter(s, array.base.context)
    forget(s, &array.base)
    if not array.part:
        discharge(s, array.base.context.gpu, array.bytes)
        status = status or cu.cuArrayDestroy(array.cu)
    free(array)
    return status


cdef int retire_array(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Array *array = <Array *>find(s, handle, ARRAY)
    if array == NULL:
        return cu.CUDA_ERROR_INVALID_HANDLE
    return cu.CUDA_ERROR_INVALID_VALUE if array.part else drop_array(s, array)


cdef void box_copy(cu.CUDA_MEMCPY3D *copy, uint64_t width, uint64_t rows) noexcept nogil:
    memset(copy, 0, sizeof(cu.CUDA_MEMCPY3D))
    copy.WidthInBytes = width
    copy.Height = rows
    copy.Depth = 1
    copy.srcHeight = rows
    copy.dstHeight = rows


cdef void from_array(cu.CUDA_MEMCPY3D *copy, Array *array, uint64_t x, uint64_t y, uint64_t z) noexcept nogil:
    copy.srcMemoryType = cu.CU_MEMORYTYPE_ARRAY
    copy.srcArray = array.cu
    copy.srcXInBytes = x
    copy.srcY = y
    copy.srcZ = z


cdef void to_array(cu.CUDA_MEMCPY3D *copy, Array *array, uint64_t x, uint64_t y, uint64_t z) noexcept nogil:
    copy.dstMemoryType = cu.CU_MEMORYTYPE_ARRAY
    copy.dstArray = array.cu
    copy.dstXInBytes = x
    copy.dstY = y
    copy.dstZ = z


cdef int sessionArrayIn_call(Session *s, Frame *f, gf_req_sessionArrayIn *q, Stream *stream,
                             Array *array) noexcept nogil:
    cdef size_t size = q.rows * q.width
    cdef Piece piece
    cdef cu.CUDA_MEMCPY3D copy
    cdef int status
    if not box_lies_in(array, q.x, q.y, q.z, q.width, q.rows):
        return read_payload(s, NULL, size) or cu.CUDA_ERROR_INVALID_VALUE
    status = take_piece(s, size, stream, &piece)
    status = status or read_payload(s, piece.data, size)
    if status != cu.CUDA_SUCCESS:
        return status
    enter(s, f.context)
    box_copy(&copy, q.width, q.rows)
    copy.srcMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.srcHost = piece.data
    copy.srcPitch = q.width
    to_array(&copy, array, q.x, q.y, q.z)
    status = cu.cuMemcpy3DAsync(&copy, stream.cu)
    return status or copied_in(s, q.stream, stream)


cdef int sessionArrayOut_call(Session *s, Frame *f, gf_req_sessionArrayOut *q, Stream *stream,
                              Array *array) noexcept nogil:
    cdef uint64_t size = q.width * q.rows
    cdef Piece piece
    cdef cu.CUDA_MEMCPY3D copy
    cdef int status
    if not box_lies_in(array, q.x, q.y, q.z, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    status = take_piece(s, size, stream, &piece)
    if status != cu.CUDA_SUCCESS:
        return status
    enter(s, f.context)
    box_copy(&copy, q.width, q.rows)
    from_array(&copy, array, q.x, q.y, q.z)
    copy.dstMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.dstHost = piece.data
    copy.dstPitch = q.width
    status = cu.cuMemcpy3DAsync(&copy, stream.cu)
    return status or answer_copy(s, f, stream, piece, size)


cdef int sessionArrayCopy_call(Session *s, Frame *f, gf_req_sessionArrayCopy *q, Stream *stream, Array *target,
                               Array *source) noexcept nogil:
    cdef cu.CUDA_MEMCPY3D copy
    if not box_lies_in(target, q.target_x, q.target_y, q.target_z, q.width, q.rows) \
            or not box_lies_in(source, q.source_x, q.source_y, q.source_z, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    box_copy(&copy, q.width, q.rows)
    from_array(&copy, source, q.source_x, q.source_y, q.source_z)
    to_array(&copy, target, q.target_x, q.target_y, q.target_z)
    return cu.cuMemcpy3DAsync(&copy, stream.cu)


cdef int sessionArrayFrom_call(Session *s, Frame *f, gf_req_sessionArrayFrom *q, Stream *stream,
                               Array *array) noexcept nogil:
    cdef cu.CUDA_MEMCPY3D copy
    if rows_overlap(q.pitch, q.width, q.rows) or not box_lies_in(array, q.x, q.y, q.z, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    box_copy(&copy, q.width, q.rows)
    copy.srcMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.srcDevice = q.address
    copy.srcPitch = q.pitch
    to_array(&copy, array, q.x, q.y, q.z)
    return cu.cuMemcpy3DAsync(&copy, stream.cu)


cdef int sessionArrayTo_call(Session *s, Frame *f, gf_req_sessionArrayTo *q, Stream *stream,
                             Array *array) noexcept nogil:
    cdef cu.CUDA_MEMCPY3D copy
    if rows_overlap(q.pitch, q.width, q.rows) or not box_lies_in(array, q.x, q.y, q.z, q.width, q.rows):
        return cu.CUDA_ERROR_INVALID_VALUE
    box_copy(&copy, q.width, q.rows)
    from_array(&copy, array, q.x, q.y, q.z)
    copy.dstMemoryType = cu.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = q.address
    copy.dstPitch = q.pitch
    return cu.cuMemcpy3DAsync(&copy, stream.cu)


cdef void list_arrays_of(Session *s, Object *owner, vector[uint64_t] *out) noexcept nogil:
    cdef Object *object = youngest(s, owner)
    cdef Array *array
    while object != NULL:
        if object.kind == ARRAY:
            array = <Array *>object
            append_words(out, object.handle, context_slot(object.context), array.row, array.rows, array.layers)
        elif object.kind == MIPMAPPED_ARRAY:
            list_arrays_of(s, object, out)
        object = next_elder(s, object)


cdef void append_words(vector[uint64_t] *out, uint64_t handle, uint64_t context, uint64_t row, uint64_t rows,
                       uint64_t layers) noexcept nogil:
    out.push_back(handle)
    out.push_back(context)
    out.push_back(row)
    out.push_back(rows)
    out.push_back(layers)


cdef void list_arrays(Session *s, vector[uint64_t] *out) noexcept nogil:
    """Of each: handle, context as a header names it, bytes of a row, rows, layers. The dispatcher stands still."""
    cdef Context *context = s.device.others
    cdef int place
    for place in range(s.device.count):
        list_arrays_of(s, <Object *>gpu_at_place(s, place).primary, out)
    while context != NULL:
        list_arrays_of(s, <Object *>context, out)
        context = next_context(s, context)


cdef int read_array(Session *s, uint64_t handle, uint64_t y, uint64_t z, uint64_t rows, void *target,
                    size_t size) noexcept nogil:
    """Whole rows of an array, when the device is idle."""
    cdef Array *array = <Array *>find(s, handle, ARRAY)
    cdef cu.CUDA_MEMCPY3D copy
    cdef int status
    if array == NULL or not box_lies_in(array, 0, y, z, array.row, rows) or size != array.row * rows:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = cu.cuCtxSetCurrent(array.base.context.cu)
    box_copy(&copy, array.row, rows)
    from_array(&copy, array, 0, y, z)
    copy.dstMemoryType = cu.CU_MEMORYTYPE_HOST
    copy.dstHost = target
    copy.dstPitch = array.row
    return status or cu.cuMemcpy3D(&copy)
