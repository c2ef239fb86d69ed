# Tensor maps, which a device's own driver encodes.


cdef int answer_map(Session *s, Frame *f, const cu.CUtensorMap *made) noexcept nogil:
    cdef Piece piece
    piece.slot = -1
    piece.data = <uint8_t *>malloc(sizeof(made[0]))
    if piece.data == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    memcpy(piece.data, made, sizeof(made[0]))
    reply(s, f, cu.CUDA_SUCCESS, sizeof(made[0]), piece)
    return DEFERRED


cdef int sessionTensorMap_call(Session *s, Frame *f, gf_req_sessionTensorMap *q) noexcept nogil:
    """The driver checks all but what its pointers lead to."""
    cdef gf_tensor_map m
    cdef cu.CUtensorMap made
    cdef uint64_t dims[5]
    cdef uint64_t strides[4]
    cdef uint32_t box[5]
    cdef uint32_t steps[5]
    cdef int lower[3]
    cdef int upper[3]
    cdef int i
    cdef int status
    memcpy(&m, q.map, sizeof(m))  # in a frame it lies at any address
    if m.rank > 5 or (m.form != GF_TENSOR_TILED and m.rank < 3):
        return cu.CUDA_ERROR_INVALID_VALUE
    for i in range(5):
        dims[i] = m.dims[i]
        box[i] = m.box[i]
        steps[i] = m.steps[i]
    for i in range(4):
        strides[i] = m.strides[i]
    for i in range(3):
        lower[i] = m.lower[i]
        upper[i] = m.upper[i]
    if m.form == GF_TENSOR_TILED:
        status = cu.cuTensorMapEncodeTiled(
            &made, <cu.CUtensorMapDataType>m.type, m.rank, <void *>m.address, <cu.cuuint64_t *>dims,
            <cu.cuuint64_t *>strides, box, steps, <cu.CUtensorMapInterleave>m.interleave,
            <cu.CUtensorMapSwizzle>m.swizzle, <cu.CUtensorMapL2promotion>m.promotion,
            <cu.CUtensorMapFloatOOBfill>m.fill)
    elif m.form == GF_TENSOR_IM2COL:
        status = cu.cuTensorMapEncodeIm2col(
            &made, <cu.CUtensorMapDataType>m.type, m.rank, <void *>m.address, <cu.cuuint64_t *>dims,
            <cu.cuuint64_t *>strides, lower, upper, box[0], box[1], steps,
            <cu.CUtensorMapInterleave>m.interleave, <cu.CUtensorMapSwizzle>m.swizzle,
            <cu.CUtensorMapL2promotion>m.promotion, <cu.CUtensorMapFloatOOBfill>m.fill)
    elif m.form == GF_TENSOR_IM2COL_WIDE:
        status = cu.cuTensorMapEncodeIm2colWide(
            &made, <cu.CUtensorMapDataType>m.type, m.rank, <void *>m.address, <cu.cuuint64_t *>dims,
            <cu.cuuint64_t *>strides, lower[0], upper[0], box[0], box[1], steps,
            <cu.CUtensorMapInterleave>m.interleave, <cu.CUtensorMapIm2ColWideMode>m.mode,
            <cu.CUtensorMapSwizzle>m.swizzle, <cu.CUtensorMapL2promotion>m.promotion,
            <cu.CUtensorMapFloatOOBfill>m.fill)
    else:
        return cu.CUDA_ERROR_INVALID_VALUE
    return status or answer_map(s, f, &made)


cdef int sessionTensorMapMove_call(Session *s, Frame *f, gf_req_sessionTensorMapMove *q) noexcept nogil:
    cdef cu.CUtensorMap moved
    memcpy(&moved, q.map, sizeof(moved))
    cdef int status = cu.cuTensorMapReplaceAddress(&moved, <void *>q.address)
    return status or answer_map(s, f, &moved)
