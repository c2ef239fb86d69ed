# Mipmapped arrays. Their levels are arrays of the driver's; one becomes an object of its own when the guest names it, so
# that copies, textures and moves know nothing of mipmaps. One that nobody named holds nothing but zeroes.


cdef inline bint is_volume(const cu.CUDA_ARRAY3D_DESCRIPTOR *desc) noexcept nogil:
    return desc.Depth > 0 and not desc.Flags & (cu.CUDA_ARRAY3D_LAYERED | cu.CUDA_ARRAY3D_CUBEMAP)


cdef size_t halved(size_t extent, uint32_t times) noexcept nogil:
    return extent >> times if extent == 0 or extent >> times > 0 else 1


cdef uint32_t levels_within(const cu.CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t wanted) noexcept nogil:
    """As many as the extents allow, as the driver reckons too."""
    cdef size_t most = max(max(desc.Width, desc.Height), desc.Depth if is_volume(desc) else 0)
    cdef uint32_t count = 1
    while count < wanted and count < 64 and most >> count > 0:
        count += 1
    return count


cdef void measure_level(const cu.CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t number, Array *level) noexcept nogil:
    cdef cu.CUDA_ARRAY3D_DESCRIPTOR part = desc[0]
    part.Width = halved(desc.Width, number)
    part.Height = halved(desc.Height, number)
    part.Depth = halved(desc.Depth, number) if is_volume(desc) else desc.Depth
    memset(level, 0, sizeof(Array))
    measure(level, &part)
    level.part = True


cdef int find_level(Mipmap *mipmap, uint32_t number, Array *level) noexcept nogil:
    measure_level(&mipmap.desc, number, level)
    return cu.cuMipmappedArrayGetLevel(&level.cu, mipmap.cu, number)


cdef int make_mipmap(Session *s, Frame *f, Mipmap *mipmap) noexcept nogil:
    """All of it is cleared, as an array is."""
    cdef Array level
    cdef uint32_t i
    cdef int status = enter(s, f.context)
    status = status or cu.cuMipmappedArrayCreate(&mipmap.cu, &mipmap.desc, mipmap.levels)
    if status != cu.CUDA_SUCCESS:
        return status
    for i in range(mipmap.levels):
        status = status or find_level(mipmap, i, &level)
        status = status or clear_array(s, f, &level)
    if status != cu.CUDA_SUCCESS:
        cu.cuMipmappedArrayDestroy(mipmap.cu)
    return status


cdef int on_cuMipmappedArrayCreate(Session *s, Frame *f, gf_req_cuMipmappedArrayCreate *q,
                                   cu.CUDA_ARRAY3D_DESCRIPTOR *desc) noexcept nogil:
    cdef Mipmap *mipmap = <Mipmap *>calloc(1, sizeof(Mipmap))
    cdef Array level
    cdef uint32_t i
    cdef int status
    if mipmap == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    mipmap.desc = desc[0]
    mipmap.levels = levels_within(desc, q.numMipmapLevels)
    for i in range(mipmap.levels):
        measure_level(desc, i, &level)
        mipmap.bytes = gf_plus(mipmap.bytes, level.bytes)
    mipmap.bytes = charge_of(mipmap.bytes)
    if mipmap.bytes == 0 or not admit_behind_work(s, f.context.gpu, mipmap.bytes):
        status = cu.CUDA_ERROR_OUT_OF_MEMORY if mipmap.bytes > 0 else cu.CUDA_ERROR_INVALID_VALUE
        free(mipmap)
        return status
    status = make_mipmap(s, f, mipmap)
    if status == cu.CUDA_SUCCESS:
        status = put(s, q.pHandle, MIPMAPPED_ARRAY, &mipmap.base, f.context)
        if status == cu.CUDA_SUCCESS:
            return status
        cu.cuMipmappedArrayDestroy(mipmap.cu)
    discharge(s, f.context.gpu, mipmap.bytes)
    free(mipmap)
    return status


cdef int find_mipmapped_array(Session *s, Frame *f, uint64_t handle, Mipmap **found) noexcept nogil:
    found[0] = <Mipmap *>find(s, handle, MIPMAPPED_ARRAY)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef int drop_mipmapped_array(Session *s, Mipmap *mipmap) noexcept nogil:
    cdef Object *level = first_owned(s, &mipmap.base)
    cdef int status = enter(s, mipmap.base.context)
    while level != NULL:
        drop_object(s, level)
        level = first_owned(s, &mipmap.base)
    forget(s, &mipmap.base)
    discharge(s, mipmap.base.context.gpu, mipmap.bytes)
    status = status or cu.cuMipmappedArrayDestroy(mipmap.cu)
    free(mipmap)
    return status


cdef int retire_mipmapped_array(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Mipmap *mipmap = <Mipmap *>find(s, handle, MIPMAPPED_ARRAY)
    return cu.CUDA_ERROR_INVALID_HANDLE if mipmap == NULL else drop_mipmapped_array(s, mipmap)


cdef int on_cuMipmappedArrayGetLevel(Session *s, Frame *f, gf_req_cuMipmappedArrayGetLevel *q,
                                     Mipmap *mipmap) noexcept nogil:
    cdef Array *level
    cdef int status = cu.CUDA_ERROR_INVALID_VALUE
    if q.level >= mipmap.levels:
        return status
    level = <Array *>calloc(1, sizeof(Array))
    if level == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    status = enter(s, mipmap.base.context)
    status = status or find_level(mipmap, q.level, level)
    status = status or put_under(s, q.pLevelArray, ARRAY, &level.base, mipmap.base.context, &mipmap.base)
    if status != cu.CUDA_SUCCESS:
        free(level)
    return status
