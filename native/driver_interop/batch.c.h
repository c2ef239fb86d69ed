/* Copies given as lists, by the copies of one. A list is looked at as a whole first; what only a copy itself
 * finds (an address, a handle) stops it there. Who includes this defines DRIVER(name), ENTER, TEXEL(format,
 * channels): the bytes of a texel, and SETTLE(stream): waits until what was to be read during the call has
 * been.
 */

static bool batch_attributes(CUmemcpySrcAccessOrder order, unsigned flags) {
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

static bool batch_stream(CUstream stream) {
    return stream != NULL && stream != CU_STREAM_LEGACY;
}

static CUresult batch_end(CUresult result, bool now, CUstream stream) {
    return result == CUDA_SUCCESS && now ? SETTLE(stream) : result;
}

/* Entry k of `attributes` is that of the copies from firsts[k] on. */
static bool batch_covered(const CUmemcpyAttributes *attributes, const size_t *firsts, size_t entries,
                          size_t count, bool *now) {
    bool good = attributes != NULL && firsts != NULL && entries > 0 && entries <= count && firsts[0] == 0;
    for (size_t i = 0; good && i < entries; i++) {
        good = firsts[i] < count && (i == 0 || firsts[i] > firsts[i - 1]) &&
               batch_attributes(attributes[i].srcAccessOrder, attributes[i].flags);
        *now |= attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    }
    return good;
}

/* `failed` is the place of the copy that could not be made; SIZE_MAX: it was none of them. */
static CUresult batch_rows(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
                           size_t *failed, CUstream stream) {
    for (size_t i = 0; i < count; i++) {
        if (to[i] == 0 || from[i] == 0 || sizes[i] == 0) {
            *failed = i;
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = DRIVER(cuMemcpyAsync)(to[i], from[i], sizes[i], stream);
        if (result != CUDA_SUCCESS) {
            *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuMemcpyBatchAsync)(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                    size_t *failIdx, CUstream hStream) {
    size_t failed = SIZE_MAX;
    bool now = false;
    ENTER;
    CUresult result = dsts != NULL && srcs != NULL && sizes != NULL && batch_stream(hStream) &&
                              batch_covered(attrs, attrsIdxs, numAttrs, count, &now)
                          ? batch_rows(dsts, srcs, sizes, count, &failed, hStream)
                          : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS && failIdx != NULL) {
        *failIdx = failed;
    }
    return batch_end(result, now, hStream);
}

CUresult DRIVER(cuMemcpyBatchAsync_v2)(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                       CUstream hStream) {
    return DRIVER(cuMemcpyBatchAsync)(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}

CUresult DRIVER(cuMemcpyWithAttributesAsync)(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                             CUmemcpyAttributes *attr, CUstream hStream) {
    size_t first = 0;
    return DRIVER(cuMemcpyBatchAsync)(&dst, &src, &size, 1, attr, &first, 1, NULL, hStream);
}

/* Bytes of what the extents of a copy count: texels, where an array is at either end; else bytes. */
static CUresult batch_element(const CUmemcpy3DOperand *operand, size_t *element) {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        return operand->op.ptr.ptr != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || operand->op.array.array == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = DRIVER(cuArray3DGetDescriptor_v2)(&desc, operand->op.array.array);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t bytes = TEXEL(desc.Format, desc.NumChannels);
    bool agree = *element == 0 || *element == bytes;
    *element = bytes;
    return agree ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* One side of a copy, as CUDA_MEMCPY3D has it for both. */
struct batch_side {
    CUmemorytype type;
    CUarray array;
    CUdeviceptr memory;
    size_t x, y, z, pitch, height;
};

static bool batch_place(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t element,
                        struct batch_side *side) {
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        const CUoffset3D *at = &operand->op.array.offset;
        *side = (struct batch_side){
            .type = CU_MEMORYTYPE_ARRAY, .array = operand->op.array.array, .y = at->y, .z = at->z};
        return !__builtin_mul_overflow(at->x, element, &side->x);
    }
    size_t row = operand->op.ptr.rowLength, rows = operand->op.ptr.layerHeight;
    *side = (struct batch_side){.type = CU_MEMORYTYPE_UNIFIED,
                                .memory = operand->op.ptr.ptr,
                                .height = rows > 0 ? rows : extent->height};
    return (row == 0 || row >= extent->width) && (rows == 0 || rows >= extent->height) &&
           !__builtin_mul_overflow(row > 0 ? row : extent->width, element, &side->pitch);
}

static CUresult batch_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    struct batch_side to, from;
    size_t element = 0, width;
    CUresult result = batch_element(&op->dst, &element);
    result = result == CUDA_SUCCESS ? batch_element(&op->src, &element) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    element = element > 0 ? element : 1;
    if (op->extent.width == 0 || op->extent.height == 0 || op->extent.depth == 0 ||
        __builtin_mul_overflow(op->extent.width, element, &width) ||
        !batch_place(&op->dst, &op->extent, element, &to) ||
        !batch_place(&op->src, &op->extent, element, &from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUDA_MEMCPY3D box = {
        .srcXInBytes = from.x,
        .srcY = from.y,
        .srcZ = from.z,
        .srcMemoryType = from.type,
        .srcDevice = from.memory,
        .srcArray = from.array,
        .srcPitch = from.pitch,
        .srcHeight = from.height,
        .dstXInBytes = to.x,
        .dstY = to.y,
        .dstZ = to.z,
        .dstMemoryType = to.type,
        .dstDevice = to.memory,
        .dstArray = to.array,
        .dstPitch = to.pitch,
        .dstHeight = to.height,
        .WidthInBytes = width,
        .Height = op->extent.height,
        .Depth = op->extent.depth,
    };
    return DRIVER(cuMemcpy3DAsync_v2)(&box, stream);
}

static CUresult batch_boxes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed, bool *now,
                            CUstream stream) {
    for (size_t i = 0; i < count; i++) {
        if (!batch_attributes(ops[i].srcAccessOrder, ops[i].flags)) {
            *failed = i;
            return CUDA_ERROR_INVALID_VALUE;
        }
        *now |= ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = batch_box(&ops[i], stream);
        if (result != CUDA_SUCCESS) {
            *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult DRIVER(cuMemcpy3DBatchAsync)(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                      unsigned long long flags, CUstream hStream) {
    size_t failed = SIZE_MAX;
    bool now = false;
    ENTER;
    CUresult result = numOps > 0 && opList != NULL && flags == 0 && batch_stream(hStream)
                          ? batch_boxes(opList, numOps, &failed, &now, hStream)
                          : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS && failIdx != NULL) {
        *failIdx = failed;
    }
    return batch_end(result, now, hStream);
}

CUresult DRIVER(cuMemcpy3DBatchAsync_v2)(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                         unsigned long long flags, CUstream hStream) {
    return DRIVER(cuMemcpy3DBatchAsync)(numOps, opList, NULL, flags, hStream);
}

CUresult DRIVER(cuMemcpy3DWithAttributesAsync)(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                               CUstream hStream) {
    return DRIVER(cuMemcpy3DBatchAsync)(1, op, NULL, flags, hStream);
}
