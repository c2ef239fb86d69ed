# cuLink*. Steps run on waiters, for they compile. The driver keeps each input as long as the link, so what it may hold
# is charged; a session that moves is given the same inputs again, so their bytes stay here as long.

cdef enum:
    LINK_LIMIT = 512 << 20      # bytes, as charged, of all links of a session
    LINK_CHARGE = 128 << 10     # at least, for a link or an input
    LINK_LOG = 64 << 10


cdef void begin_links(Session *s) noexcept nogil:
    s.links.charged = 0


cdef bint charge(Session *s, uint64_t size) noexcept nogil:
    cdef bint granted
    pthread_mutex_lock(&s.lock)
    granted = size <= LINK_LIMIT - s.links.charged and affords(s, size)
    if granted:
        s.links.charged += size
        spend(s, size)
    pthread_mutex_unlock(&s.lock)
    return granted


cdef void refund(Session *s, uint64_t size) noexcept nogil:
    pthread_mutex_lock(&s.lock)
    s.links.charged -= size
    unspend(s, size)
    pthread_mutex_unlock(&s.lock)


cdef void free_link(Link *link) noexcept nogil:
    del link.inputs
    free(link.error)
    free(link.info)
    free(link.lane)
    free(link)


cdef Link *new_link(unsigned int count, cu.CUjit_option *options, void **values) noexcept nogil:
    """With the guest's options and logs of our own."""
    cdef Link *link = <Link *>calloc(1, sizeof(Link))
    link.inputs = new vector[PBytes]()
    link.lane = <Lane *>calloc(1, sizeof(Lane))
    link.error = <char *>calloc(1, LINK_LOG)
    link.info = <char *>calloc(1, LINK_LOG)
    if count > 0:
        memcpy(link.options, options, count * sizeof(cu.CUjit_option))
        memcpy(link.values, values, count * sizeof(void *))
    link.options[count] = cu.CU_JIT_ERROR_LOG_BUFFER
    link.values[count] = link.error
    link.options[count + 1] = cu.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
    link.values[count + 1] = <void *><size_t>LINK_LOG
    link.options[count + 2] = cu.CU_JIT_INFO_LOG_BUFFER
    link.values[count + 2] = link.info
    link.options[count + 3] = cu.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
    link.values[count + 3] = <void *><size_t>LINK_LOG
    return link


cdef int on_cuLinkCreate_v2(Session *s, Frame *f, gf_req_cuLinkCreate_v2 *q, unsigned int count,
                            cu.CUjit_option *options, void **values) noexcept nogil:
    cdef Link *link
    cdef int status
    if count + 4 > LINK_OPTIONS:
        return cu.CUDA_ERROR_INVALID_VALUE
    if not charge(s, LINK_CHARGE):
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    link = new_link(count, options, values)
    status = cu.cuLinkCreate(count + 4, link.options, link.values, &link.cu)
    if status == cu.CUDA_SUCCESS:
        status = put(s, q.stateOut, LINK, &link.base, f.context)
        if status != cu.CUDA_SUCCESS:
            cu.cuLinkDestroy(link.cu)
    if status != cu.CUDA_SUCCESS:
        free_link(link)
        refund(s, LINK_CHARGE)
    return status


cdef int find_link(Session *s, Frame *f, uint64_t handle, Link **found) noexcept nogil:
    found[0] = <Link *>find(s, handle, LINK)
    return cu.CUDA_ERROR_INVALID_HANDLE if found[0] == NULL else cu.CUDA_SUCCESS


cdef void submit_step(Session *s, Link *link, Task *task, Frame *f) noexcept nogil:
    task.link = link
    task.size = f.size
    task.body = <uint8_t *>malloc(f.size)
    memcpy(task.body, f.body, f.size)
    pthread_mutex_lock(&s.lock)
    link.steps += 1
    pthread_mutex_unlock(&s.lock)
    submit(s, link.lane, task)


cdef int on_sessionLinkAdd(Session *s, Frame *f, gf_req_sessionLinkAdd *q, gf_rep_sessionLinkAdd *out, Link *link,
                           char *name, unsigned int count, cu.CUjit_option *options, void **values) noexcept nogil:
    cdef uint64_t size = max(q.size, <uint64_t>LINK_CHARGE)
    cdef Bytes *image
    cdef LinkInput *input
    cdef Task *task
    if q.name_size > LINK_NAME or count > LINK_OPTIONS:
        return cu.CUDA_ERROR_INVALID_VALUE
    image = borrow_bytes(s, q.hash, q.size)
    if image == NULL:
        reply(s, f, cu.CUDA_SUCCESS, 0, NO_PIECE)   # known = 0: the guest sends it and asks again
        return DEFERRED
    if not charge(s, size):
        give_back_bytes(s, image)
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    input = <LinkInput *>calloc(1, sizeof(LinkInput))
    input.charge = size
    input.type = <cu.CUjitInputType>q.type
    input.count = count
    if q.name_size > 0:
        memcpy(input.name, name, q.name_size)
    if count > 0:
        memcpy(input.options, options, count * sizeof(cu.CUjit_option))
        memcpy(input.values, values, count * sizeof(void *))
    task = new_task(TASK_LINK, f, link.base.context)
    task.image = image
    task.input = input
    submit_step(s, link, task, f)
    return DEFERRED


cdef int on_sessionLinkComplete(Session *s, Frame *f, gf_req_sessionLinkComplete *q, gf_rep_sessionLinkComplete *out,
                                Link *link) noexcept nogil:
    submit_step(s, link, new_task(TASK_LINK, f, link.base.context), f)
    return DEFERRED


cdef int sessionLinkImage_call(Session *s, Frame *f, gf_req_sessionLinkImage *q, Link *link) noexcept nogil:
    cdef Piece piece
    cdef uint8_t *image
    cdef uint64_t size
    pthread_mutex_lock(&s.lock)
    image = <uint8_t *>link.image
    size = link.size
    pthread_mutex_unlock(&s.lock)
    if image == NULL or q.offset > size or q.size > size - q.offset:
        return cu.CUDA_ERROR_INVALID_VALUE
    piece.slot = -1
    piece.data = <uint8_t *>malloc(q.size)
    memcpy(piece.data, image + q.offset, q.size)
    reply(s, f, cu.CUDA_SUCCESS, q.size, piece)
    return DEFERRED


cdef int add_input(Session *s, Task *task) noexcept nogil:
    cdef LinkInput *input = task.input
    cdef Link *link = task.link
    cdef const char *name = NULL
    cdef const char *fault = NULL
    cdef int status = prove_bytes(task.image, True, &fault)
    if status != cu.CUDA_SUCCESS:
        snprintf(link.error, LINK_LOG, b"gpuferry: no image: %s", fault)
    if input.name[0] != 0:
        name = input.name
    status = status or cu.cuLinkAddData(link.cu, input.type, task.image.data, task.image.size, name, input.count,
                                        input.options, input.values)
    if status == cu.CUDA_SUCCESS:
        hold_source(s, task.image)
        pthread_mutex_lock(&s.lock)
        link.inputs.push_back(task.image)
        link.charged += input.charge
        pthread_mutex_unlock(&s.lock)
    else:
        refund(s, input.charge)
    give_back_bytes(s, task.image)
    return status


cdef int complete_link(Session *s, Link *link, uint64_t *digest) noexcept nogil:
    cdef void *image = NULL
    cdef size_t size = 0
    cdef uint8_t hash[GF_HASH_SIZE]
    cdef int status = cu.cuLinkComplete(link.cu, &image, &size)
    if status != cu.CUDA_SUCCESS:
        return status
    gf_sha256(image, size, hash)
    memcpy(digest, hash, sizeof(uint64_t))
    hold_made(s, hash, image, size)
    pthread_mutex_lock(&s.lock)
    link.image = image
    link.size = size
    pthread_mutex_unlock(&s.lock)
    return status


cdef uint32_t take_text(char *log, vector[uint8_t] *texts) noexcept nogil:
    """What the driver wrote into a log that held zeroes, wherever that is; then zeroes again."""
    cdef size_t begin = 0
    cdef size_t length
    while begin < LINK_LOG and log[begin] == 0:
        begin += 1
    length = strnlen(log + begin, LINK_LOG - begin)
    append(texts, log + begin, length)
    memset(log, 0, LINK_LOG)
    return <uint32_t>length


cdef void run_link(Session *s, Task *task) noexcept nogil:
    """Adds an input to a link or completes it, on a waiter, and answers the guest."""
    cdef Link *link = task.link
    cdef gf_rep_sessionLinkAdd *added = <gf_rep_sessionLinkAdd *>task.frame.reply
    cdef gf_rep_sessionLinkComplete *done = <gf_rep_sessionLinkComplete *>task.frame.reply
    cdef vector[uint8_t] payload
    cdef Piece piece
    cdef uint32_t errors, infos
    cdef int status = cu.cuCtxSetCurrent(link.base.context.cu)
    cdef uint64_t digest = 0
    if task.input != NULL:
        status = add_input(s, task)
        added.known = 1
    else:
        status = complete_link(s, link, &digest)
        done.size = link.size if status == cu.CUDA_SUCCESS else 0
        done.digest = digest
    cu.cuCtxSetCurrent(s.device.primary.cu)
    if status == cu.CUDA_SUCCESS:       # what the driver has to say is no part of what there is
        keep(s, &task.frame, task.body, task.size,
             digest_of(status, task.frame.reply, task.frame.reply_size, NULL, 0))
    errors = take_text(link.error, &payload)
    infos = take_text(link.info, &payload)
    if task.input != NULL:
        added.error_size = errors
        added.info_size = infos
    else:
        done.error_size = errors
        done.info_size = infos
        append(&payload, link.image, min(done.size, <uint64_t>GF_CHUNK))
    piece.slot = -1
    piece.data = <uint8_t *>malloc(payload.size() + 1)
    if not payload.empty():
        memcpy(piece.data, payload.data(), payload.size())
    free(task.input)
    free(task.body)
    pthread_mutex_lock(&s.lock)
    link.steps -= 1
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
    reply(s, &task.frame, status, payload.size(), piece)


cdef int drop_link(Session *s, Link *link) noexcept nogil:
    """Ends it once its steps are over."""
    cdef size_t i
    cdef int status
    pthread_mutex_lock(&s.lock)
    while link.steps > 0:
        wait_briefly(&s.changed, &s.lock)
    if link.lane.busy:
        link.lane.orphan = True
        link.lane = NULL
    pthread_mutex_unlock(&s.lock)
    forget(s, &link.base)
    status = enter(s, link.base.context)
    status = cu.cuLinkDestroy(link.cu) or status
    for i in range(link.inputs.size()):
        leave_source(s, link.inputs[0][i])
    refund(s, LINK_CHARGE + link.charged)
    free_link(link)
    return status


cdef int retire_link(Session *s, Frame *f, uint64_t handle) noexcept nogil:
    cdef Link *link = <Link *>find(s, handle, LINK)
    return cu.CUDA_ERROR_INVALID_HANDLE if link == NULL else drop_link(s, link)
