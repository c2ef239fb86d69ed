# Texture and surface objects. A program passes the driver's own number to its kernels, in parameters that nobody can
# take apart. So after a move the driver must give the same number again (DESIGN.md, "Textures").

cdef enum:
    FILLER_LIMIT = 4096         # objects that are made and kept until the wanted number comes


cdef int make_object(bint surface, cu.CUDA_RESOURCE_DESC *resource, cu.CUDA_TEXTURE_DESC *texture,
                     cu.CUDA_RESOURCE_VIEW_DESC *part, uint64_t *made) noexcept nogil:
    if surface:
        return cu.cuSurfObjectCreate(<cu.CUsurfObject *>made, resource)
    return cu.cuTexObjectCreate(<cu.CUtexObject *>made, resource, texture, part)


cdef void end_object(bint surface, uint64_t value) noexcept nogil:
    if surface:
        cu.cuSurfObjectDestroy(value)
    else:
        cu.cuTexObjectDestroy(value)


cdef void give_up_filler(Session *s, uint64_t value, bint surface) noexcept nogil:
    """What keeps a number from others does so no longer."""
    cdef size_t i
    for i in range(s.arrays.fillers.size()):
        if s.arrays.fillers[0][i].value == value:
            end_object(s.arrays.fillers[0][i].surface, value)
            s.arrays.fillers[0][i] = s.arrays.fillers.back()
            s.arrays.fillers.pop_back()
            return


cdef void drop_fillers(Session *s) noexcept nogil:
    cdef size_t i
    for i in range(s.arrays.fillers.size()):
        end_object(s.arrays.fillers[0][i].surface, s.arrays.fillers[0][i].value)
    s.arrays.fillers.clear()


cdef int make_wanted(Session *s, uint64_t wanted, bint surface, cu.CUDA_RESOURCE_DESC *resource,
                     cu.CUDA_TEXTURE_DESC *texture, cu.CUDA_RESOURCE_VIEW_DESC *part, uint64_t *made) noexcept nogil:
    """An object under the wanted number; whatever else the driver gives on the way is kept, so that it goes on."""
    cdef Filler filler
    cdef int status
    give_up_filler(s, wanted, surface)
    filler.surface = surface
    while True:
        status = make_object(surface, resource, texture, part, made)
        if status != cu.CUDA_SUCCESS or made[0] == wanted:
            return status
        filler.value = made[0]
        s.arrays.fillers.push_back(filler)
        if s.arrays.fillers.size() > FILLER_LIMIT:
            return cu.CUDA_ERROR_NOT_FOUND


cdef int make_bereft(Session *s, uint64_t wanted, bint surface, uint64_t *made) noexcept nogil:
    """An object that reads what has ended: an array like any other, which ends as soon as it is read by that."""
    cdef cu.CUDA_ARRAY3D_DESCRIPTOR desc
    cdef cu.CUDA_RESOURCE_DESC resource
    cdef cu.CUDA_TEXTURE_DESC texture
    cdef int status
    memset(&desc, 0, sizeof(desc))
    memset(&resource, 0, sizeof(resource))
    memset(&texture, 0, sizeof(texture))
    desc.Width = desc.Height = desc.NumChannels = 1
    desc.Format = cu.CU_AD_FORMAT_UNSIGNED_INT8
    desc.Flags = cu.CUDA_ARRAY3D_SURFACE_LDST
    status = cu.cuArray3DCreate(&resource.res.array.hArray, &desc)
    if status != cu.CUDA_SUCCESS:
        return status
    resource.resType = cu.CU_RESOURCE_TYPE_ARRAY
    status = make_wanted(s, wanted, surface, &resource, &texture, NULL, made)
    return cu.cuArrayDestroy(resource.res.array.hArray) or status


cdef int make_numbered(Session *s, Frame *f, uint64_t wanted, bint surface, cu.CUDA_RESOURCE_DESC *resource,
                       cu.CUDA_TEXTURE_DESC *texture, cu.CUDA_RESOURCE_VIEW_DESC *part, uint64_t *made) noexcept nogil:
    """The number that is made goes into the frame that is kept, as the one wanted: the next server is to give it again."""
    cdef int status
    if wanted != 0 and not s.arrival.restoring:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = enter(s, f.context)
    if status == cu.CUDA_SUCCESS and f.lacking:
        return make_bereft(s, wanted, surface, made)
    if status == cu.CUDA_SUCCESS and wanted != 0:
        return make_wanted(s, wanted, surface, resource, texture, part, made)
    return status or make_object(surface, resource, texture, part, made)


cdef int on_sessionTextureCreate(Session *s, Frame *f, gf_req_sessionTextureCreate *q,
                                 gf_rep_sessionTextureCreate *out, cu.CUDA_RESOURCE_DESC *resource,
                                 cu.CUDA_TEXTURE_DESC *texture, cu.CUDA_RESOURCE_VIEW_DESC *part) noexcept nogil:
    cdef TextureObject *bereft = <TextureObject *>find(s, q.object, TEXTURE_OBJECT) if s.arrival.restoring else NULL
    cdef int status = cu.CUDA_SUCCESS
    if bereft == NULL:
        status = make_numbered(s, f, q.wanted, False, resource, texture, part, &out.value)
        if status == cu.CUDA_SUCCESS and q.wanted == 0:
            q.wanted = out.value
        if status == cu.CUDA_SUCCESS and f.lacking:
            s.arrays.lacking.push_back(q.object)
        return status or adopt_texture_object(s, f, q.object, out.value)
    if f.lacking:
        return status
    status = enter(s, f.context)
    status = status or cu.cuTexObjectDestroy(bereft.cu)
    status = status or make_wanted(s, q.wanted, False, resource, texture, part, &out.value)
    bereft.cu = out.value if status == cu.CUDA_SUCCESS else 0
    return status


cdef int on_sessionSurfaceCreate(Session *s, Frame *f, gf_req_sessionSurfaceCreate *q,
                                 gf_rep_sessionSurfaceCreate *out, cu.CUDA_RESOURCE_DESC *resource) noexcept nogil:
    cdef int status = make_numbered(s, f, q.wanted, True, resource, NULL, NULL, &out.value)
    if status == cu.CUDA_SUCCESS and q.wanted == 0:
        q.wanted = out.value
    return status or adopt_surface_object(s, f, q.object, out.value)


# What is replayed and names what is not there

cdef Object *object_of(Session *s, uint64_t handle) noexcept nogil:
    cdef int kind = <int>gf_handle_kind(handle)
    return find(s, handle, kind) if kind < KINDS else NULL


cdef int lapse(Session *s, Frame *f, int status) noexcept nogil:
    """What was bound has ended, or comes later: nothing is bound until then."""
    cdef uint64_t handle
    memcpy(&handle, f.body + replays[places[f.op]].handle, sizeof(handle))
    if object_of(s, handle) == NULL:
        return status
    s.arrays.lacking.push_back(handle)
    return cu.CUDA_SUCCESS


cdef void bind_again(Session *s, Object *object, Frame *f) noexcept nogil:
    if (object.kind == TEXTURE_OBJECT or lapses[f.op]) and enter(s, f.context) == cu.CUDA_SUCCESS:
        handlers[f.op](s, f)


cdef int bind_lacking(Session *s) noexcept nogil:
    """It may have come after what reads it: memory that other processes have made. An object that has lost its number
    keeps the session where it is."""
    cdef Object *object
    cdef size_t i
    for i in range(s.arrays.lacking.size()):
        object = object_of(s, s.arrays.lacking[0][i])
        if object != NULL:
            do_again(s, object, bind_again)
        if object != NULL and object.kind == TEXTURE_OBJECT and (<TextureObject *>object).cu == 0:
            return cu.CUDA_ERROR_NOT_FOUND
    s.arrays.lacking.clear()
    return cu.CUDA_SUCCESS
