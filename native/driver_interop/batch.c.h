/* Copies given as lists, by the copies of one. Who includes this defines DRIVER(name), ENTER, TEXEL(format,
 * channels): the bytes of a texel, and SETTLE(stream): what was to be read during the call has been. */

static bool batch_attributes(const CUmemcpyAttributes *attributes) {
    return attributes->srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
           attributes->srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           attributes->flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

static bool batch_stream(CUstream stream) {
    return stream != NULL && stream != CU_STREAM_LEGACY;
}

/* One copy each; `failed` is the place of the one that could not be made. */
static CUresult copy_listed(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
                            const CUmemcpyAttributes *attributes, const size_t *firsts,
                            size_t attribute_count, size_t *failed, CUstream stream) {
    bool now = false;
    *failed = SIZE_MAX;
    if (count == 0 || to == NULL || from == NULL || sizes == NULL || attributes == NULL || firsts == NULL ||
        attribute_count == 0 || attribute_count > count || firsts[0] != 0 || !batch_stream(stream)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < attribute_count; i++) {
        if (firsts[i] >= count || (i > 0 && firsts[i] <= firsts[i - 1]) ||
            !batch_attributes(&attributes[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        now |= attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    }
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
    return now ? SETTLE(stream) : CUDA_SUCCESS;
}

CUresult DRIVER(cuMemcpyBatchAsync)(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                    size_t *failIdx, CUstream hStream) {
    size_t failed;
    ENTER;
    CUresult result = copy_listed(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
    if (result != CUDA_SUCCESS && failIdx != NULL) {
        *failIdx = failed;
    }
    return result;
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

/* Bytes of what the extents of a copy count: texels of an array at either end, else bytes. */
static CUresult batch_element(const CUmemcpy3DOperand *operand, size_t *element) {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        return CUDA_SUCCESS;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = DRIVER(cuArray3DGetDescriptor_v2)(&desc, operand->op.array.array);
    if (result == CUDA_SUCCESS) {
        *element = TEXEL(desc.Format, desc.NumChannels);
    }
    return result;
}

static CUresult batch_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    const CUmemcpy3DOperand *to = &op->dst, *from = &op->src;
    size_t element = 1, width;
    CUresult result = batch_element(to, &element);
    result = result == CUDA_SUCCESS ? batch_element(from, &element) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (__builtin_mul_overflow(op->extent.width, element, &width)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D box = {.WidthInBytes = width, .Height = op->extent.height, .Depth = op->extent.depth};
    if (to->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        box.dstArray = to->op.array.array;
        box.dstXInBytes = to->op.array.offset.x * element;
        box.dstY = to->op.array.offset.y;
        box.dstZ = to->op.array.offset.z;
    } else {
        box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        box.dstDevice = to->op.ptr.ptr;
        box.dstPitch = to->op.ptr.rowLength ? to->op.ptr.rowLength * element : width;
        box.dstHeight = to->op.ptr.layerHeight ? to->op.ptr.layerHeight : op->extent.height;
    }
    if (from->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        box.srcArray = from->op.array.array;
        box.srcXInBytes = from->op.array.offset.x * element;
        box.srcY = from->op.array.offset.y;
        box.srcZ = from->op.array.offset.z;
    } else {
        box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        box.srcDevice = from->op.ptr.ptr;
        box.srcPitch = from->op.ptr.rowLength ? from->op.ptr.rowLength * element : width;
        box.srcHeight = from->op.ptr.layerHeight ? from->op.ptr.layerHeight : op->extent.height;
    }
    return DRIVER(cuMemcpy3DAsync_v2)(&box, stream);
}

CUresult DRIVER(cuMemcpy3DBatchAsync)(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                      unsigned long long flags, CUstream hStream) {
    size_t failed = SIZE_MAX;
    bool now = false;
    ENTER;
    CUresult result = numOps == 0 || opList == NULL || flags != 0 || !batch_stream(hStream)
                          ? CUDA_ERROR_INVALID_VALUE
                          : CUDA_SUCCESS;
    for (size_t i = 0; i < numOps && result == CUDA_SUCCESS; i++) {
        const CUmemcpyAttributes attributes = {.srcAccessOrder = opList[i].srcAccessOrder,
                                               .flags = opList[i].flags};
        now |= opList[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        result = batch_attributes(&attributes) ? batch_box(&opList[i], hStream) : CUDA_ERROR_INVALID_VALUE;
        failed = result == CUDA_SUCCESS ? failed : i;
    }
    if (result != CUDA_SUCCESS) {
        if (failIdx != NULL) {
            *failIdx = failed;
        }
        return result;
    }
    return now ? SETTLE(hStream) : CUDA_SUCCESS;
}

CUresult DRIVER(cuMemcpy3DBatchAsync_v2)(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                         unsigned long long flags, CUstream hStream) {
    return DRIVER(cuMemcpy3DBatchAsync)(numOps, opList, NULL, flags, hStream);
}

CUresult DRIVER(cuMemcpy3DWithAttributesAsync)(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                               CUstream hStream) {
    return DRIVER(cuMemcpy3DBatchAsync)(1, op, NULL, flags, hStream);
}
