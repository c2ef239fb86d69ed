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


cdef int make_numbered(Session *s, Frame *f, uint64_t *wanted, bint surface, cu.CUDA_RESOURCE_DESC *resource,
                       cu.CUDA_TEXTURE_DESC *texture, cu.CUDA_RESOURCE_VIEW_DESC *part, uint64_t *made) noexcept nogil:
    """The number goes into the frame that is kept: the next server is to give it again."""
    cdef int status
    if wanted[0] != 0 and not s.arrival.restoring:
        return cu.CUDA_ERROR_INVALID_VALUE
    status = enter(s, f.context)
    if status == cu.CUDA_SUCCESS and wanted[0] != 0:
        return make_wanted(s, wanted[0], surface, resource, texture, part, made)
    status = status or make_object(surface, resource, texture, part, made)
    if status == cu.CUDA_SUCCESS:
        wanted[0] = made[0]
    return status


cdef int on_sessionTextureCreate(Session *s, Frame *f, gf_req_sessionTextureCreate *q,
                                 gf_rep_sessionTextureCreate *out, cu.CUDA_RESOURCE_DESC *resource,
                                 cu.CUDA_TEXTURE_DESC *texture, cu.CUDA_RESOURCE_VIEW_DESC *part) noexcept nogil:
    cdef int status = make_numbered(s, f, &q.wanted, False, resource, texture, part, &out.value)
    return status or adopt_texture_object(s, f, q.object, out.value)


cdef int on_sessionSurfaceCreate(Session *s, Frame *f, gf_req_sessionSurfaceCreate *q,
                                 gf_rep_sessionSurfaceCreate *out, cu.CUDA_RESOURCE_DESC *resource) noexcept nogil:
    cdef int status = make_numbered(s, f, &q.wanted, True, resource, NULL, NULL, &out.value)
    return status or adopt_surface_object(s, f, q.object, out.value)
