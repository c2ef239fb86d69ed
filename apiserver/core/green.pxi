# Green contexts, and events of all that a context was given.

cdef enum:
    MOST_PARTS = 512


cdef inline bint has_part(const uint8_t *wanted, unsigned int i) noexcept nogil:
    return i < MOST_PARTS and wanted[i >> 3] >> (i & 7) & 1


cdef unsigned int count_parts(const uint8_t *wanted, unsigned int first, unsigned int end) noexcept nogil:
    cdef unsigned int i
    cdef unsigned int count = 0
    for i in range(first, end):
        count += has_part(wanted, i)
    return count


cdef bint choose_parts(cu.CUdevResource *all, unsigned int flags, const uint8_t *wanted,
                       vector[cu.CUdevResource] *chosen) noexcept nogil:
    """The smallest groups into which the driver splits a device, as many as make up what is wanted; False: none do."""
    cdef vector[cu.CUdevResource] groups
    cdef cu.CUdevResource rest
    cdef unsigned int count = MOST_PARTS
    cdef unsigned int size, found, i
    cdef unsigned int total = count_parts(wanted, 0, MOST_PARTS)
    groups.resize(MOST_PARTS)
    chosen.clear()
    memset(&rest, 0, sizeof(rest))
    if cu.cuDevSmResourceSplitByCount(groups.data(), &count, all, &rest, flags, 0) != cu.CUDA_SUCCESS or count == 0:
        return False
    size = groups[0].sm.smCount
    for i in range(count):
        found = count_parts(wanted, i * size, (i + 1) * size)
        if found == size:
            chosen.push_back(groups[i])
            total -= size
        elif found != 0:
            return False
    if total > 0 and rest.type == cu.CU_DEV_RESOURCE_TYPE_SM and total == rest.sm.smCount:
        chosen.push_back(rest)
        total = 0
    return total == 0


cdef int sessionGreenContext_call(Session *s, Frame *f, gf_req_sessionGreenContext *q,
                                  cu.CUgreenCtx *made) noexcept nogil:
    """The guest has split the device by the rules that CUDA's manual gives. A driver that groups otherwise says so here."""
    cdef cu.CUdevice device = device_of(s, q.device)
    cdef vector[cu.CUdevResource] chosen
    cdef cu.CUdevResource one
    cdef cu.CUdevResourceDesc desc
    cdef unsigned int wanted = count_parts(q.multiprocessors, 0, MOST_PARTS)
    cdef int status = cu.cuDeviceGetDevResource(device, &one, cu.CU_DEV_RESOURCE_TYPE_SM)
    if status != cu.CUDA_SUCCESS:
        return status
    if wanted == one.sm.smCount and count_parts(q.multiprocessors, 0, wanted) == wanted:
        chosen.push_back(one)
    elif not choose_parts(&one, 0, q.multiprocessors, &chosen) and not choose_parts(
            &one, cu.CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, q.multiprocessors, &chosen):
        return cu.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    if q.workloads > 0:
        memset(&one, 0, sizeof(one))
        one.type = cu.CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG
        one.wqConfig.device = device
        one.wqConfig.wqConcurrencyLimit = q.workloads
        one.wqConfig.sharingScope = <cu.CUdevWorkqueueConfigScope>q.scope
        chosen.push_back(one)
    status = cu.cuDevResourceGenerateDesc(&desc, chosen.data(), <unsigned int>chosen.size())
    return status or cu.cuGreenCtxCreate(made, desc, device, q.flags)


cdef int sessionGreenStream_call(Session *s, Frame *f, gf_req_sessionGreenStream *q, Stream *stream,
                                 GreenContext *green) noexcept nogil:
    """A stream that was just made, or whose green context is about to end."""
    cdef int priority = 0
    cdef cu.CUcontext named
    cdef cu.CUstream made
    if q.stream <= 2:
        return cu.CUDA_ERROR_INVALID_HANDLE    # the default streams are nobody's to change
    cdef int status = enter(s, stream.base.context)
    status = status or cu.cuStreamGetPriority(stream.cu, &priority)
    if status == cu.CUDA_SUCCESS and green != NULL:
        status = cu.cuCtxFromGreenCtx(&named, green.cu)
        status = status or cu.cuCtxPushCurrent(named)
    if status == cu.CUDA_SUCCESS:
        status = cu.cuStreamCreateWithPriority(
            &made, cu.CU_STREAM_NON_BLOCKING if stream.nonblocking else cu.CU_STREAM_DEFAULT, priority)
        if green != NULL:
            cu.cuCtxPopCurrent(&named)
    if status == cu.CUDA_SUCCESS:
        renew_stream(s, stream, made)
    return status


cdef int sessionContextEvent_call(Session *s, Frame *f, gf_req_sessionContextEvent *q, Context *owner,
                                  GreenContext *green, Event *event) noexcept nogil:
    cdef int status = enter(s, owner)
    if event.arena != NULL:
        return status or join_all(s, owner, green, event, q.wait)
    if q.wait and green != NULL:
        return status or cu.cuGreenCtxWaitEvent(green.cu, event.cu)
    if q.wait:
        return status or cu.cuCtxWaitEvent(owner.cu, event.cu)
    if green != NULL:
        status = status or cu.cuGreenCtxRecordEvent(green.cu, event.cu)
    else:
        status = status or cu.cuCtxRecordEvent(owner.cu, event.cu)
    if status == cu.CUDA_SUCCESS:
        event.recorded = True
        event.flags = cu.CU_EVENT_RECORD_DEFAULT
        event.aged = False
    return status
