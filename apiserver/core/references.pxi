# Texture and surface references: variables of modules to which memory and arrays are bound.


cdef int adopt_reference(Session *s, uint64_t handle, cu.CUtexref made, Context *context, Object *owner,
                         bint created) noexcept nogil:
    cdef TextureReference *reference = <TextureReference *>calloc(1, sizeof(TextureReference))
    cdef int status = cu.CUDA_ERROR_OUT_OF_MEMORY
    if reference != NULL:
        reference.cu = made
        reference.created = created
        status = put_under(s, handle, TEXTURE_REFERENCE, &reference.base, context, owner)
    if status != cu.CUDA_SUCCESS:
        if created:
            cu.cuTexRefDestroy(made)
        free(reference)
    return status


cdef int on_cuTexRefCreate(Session *s, Frame *f, gf_req_cuTexRefCreate *q) noexcept nogil:
    cdef cu.CUtexref made
    cdef int status = enter(s, f.context)
    status = status or cu.cuTexRefCreate(&made)
    return status or adopt_reference(s, q.pTexRef, made, f.context, &f.context.base, True)


cdef int on_sessionTextureReference(Session *s, Frame *f, gf_req_sessionTextureReference *q, Image *module,
                                    const uint8_t *text, size_t length) noexcept nogil:
    cdef char name[4096]
    cdef cu.CUtexref made
    cdef int status
    if not text_of(text, length, name, sizeof(name)):
        return cu.CUDA_ERROR_NOT_FOUND
    status = enter(s, module.base.context)
    status = status or cu.cuModuleGetTexRef(&made, module.module, name)
    return status or adopt_reference(s, q.reference, made, module.base.context, &module.base, False)


cdef int sessionSurfaceReference_call(Session *s, Frame *f, gf_req_sessionSurfaceReference *q, Image *module,
                                      const uint8_t *text, size_t length, cu.CUsurfref *made) noexcept nogil:
    cdef char name[4096]
    cdef int status
    if not text_of(text, length, name, sizeof(name)):
        return cu.CUDA_ERROR_NOT_FOUND
    status = enter(s, module.base.context)
    return status or cu.cuModuleGetSurfRef(made, module.module, name)


cdef int find_texture_reference(Session *s, Frame *f, uint64_t handle, TextureReference **found) noexcept nogil:
    found[0] = <TextureReference *>find(s, handle, TEXTURE_REFERENCE)
    return cu.CUDA_SUCCESS if found[0] != NULL else cu.CUDA_ERROR_INVALID_HANDLE


cdef int drop_texture_reference(Session *s, TextureReference *reference) noexcept nogil:
    """A module's ends with the module."""
    cdef int status = enter(s, reference.base.context)
    forget(s, &reference.base)
    if reference.created:
        status = status or cu.cuTexRefDestroy(reference.cu)
    free(reference)
    return status


cdef int retire_texture_reference(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef TextureReference *reference = <TextureReference *>find(s, handle, TEXTURE_REFERENCE)
    if reference == NULL or not reference.created:
        return cu.CUDA_ERROR_INVALID_HANDLE if reference == NULL else cu.CUDA_ERROR_INVALID_VALUE
    return drop_texture_reference(s, reference)


cdef int sessionTextureBind_call(Session *s, Frame *f, gf_req_sessionTextureBind *q, TextureReference *reference,
                                 cu.CUDA_RESOURCE_DESC *resource) noexcept nogil:
    cdef cu.CUDA_ARRAY_DESCRIPTOR desc
    cdef size_t offset
    cdef int status = cu.CUDA_ERROR_INVALID_VALUE if f.lacking else enter(s, reference.base.context)
    if status != cu.CUDA_SUCCESS:
        return status
    if resource == NULL:
        return cu.cuTexRefSetAddress(&offset, reference.cu, 0, 0)
    if resource.resType == cu.CU_RESOURCE_TYPE_ARRAY:
        return cu.cuTexRefSetArray(reference.cu, resource.res.array.hArray, cu.CU_TRSA_OVERRIDE_FORMAT)
    if resource.resType == cu.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return cu.cuTexRefSetMipmappedArray(reference.cu, resource.res.mipmap.hMipmappedArray,
                                            cu.CU_TRSA_OVERRIDE_FORMAT)
    if resource.resType == cu.CU_RESOURCE_TYPE_LINEAR:
        return cu.cuTexRefSetAddress(&offset, reference.cu, resource.res.linear.devPtr,
                                     resource.res.linear.sizeInBytes)
    desc.Width = resource.res.pitch2D.width
    desc.Height = resource.res.pitch2D.height
    desc.Format = resource.res.pitch2D.format
    desc.NumChannels = resource.res.pitch2D.numChannels
    return cu.cuTexRefSetAddress2D(reference.cu, &desc, resource.res.pitch2D.devPtr,
                                   resource.res.pitch2D.pitchInBytes)
