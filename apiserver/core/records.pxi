# Events that several processes have (WIRE.md 15). Records of an event are numbered, and complete in any order: streams
# write the number of a record that is complete into one of the event's slots, and wait until one is there. Those words are
# host memory that the API servers of a lease share, so an event is asked without the device, and no driver's own IPC is
# needed, which would not cross PID namespaces.


cdef inline uint64_t load_word(uint64_t *word) noexcept nogil:
    return atomic_load(word, ATOMIC_ACQUIRE)


cdef inline uint64_t *slot_of(uint64_t *cell, uint64_t number) noexcept nogil:
    return &cell[1 + number % RECORD_SLOTS]


cdef inline bint is_complete(uint64_t *cell, uint64_t number) noexcept nogil:
    return number == 0 or <int64_t>(load_word(slot_of(cell, number)) - number) >= 0


cdef Arena *map_arena(Session *s, int file) noexcept nogil:
    """NULL: there is no memory, or it is no such file."""
    cdef Arena *arena
    cdef void *memory
    if lseek(file, 0, SEEK_END) != ARENA_SIZE:
        return NULL
    memory = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
    if memory == MAP_FAILED:
        return NULL
    arena = <Arena *>calloc(1, sizeof(Arena))
    arena.words = <uint64_t *>memory
    return arena


cdef int register_arena(Session *s, Arena *arena) noexcept nogil:
    """The device reaches it from now on."""
    cdef int status = cu.CUDA_SUCCESS
    if arena.device != 0:
        return status
    status = enter(s, s.device.primary)
    status = status or cu.cuMemHostRegister(arena.words, ARENA_SIZE,
                                            cu.CU_MEMHOSTREGISTER_PORTABLE | cu.CU_MEMHOSTREGISTER_DEVICEMAP)
    return status or cu.cuMemHostGetDevicePointer(&arena.device, arena.words, 0)


cdef int open_own_arena(Session *s) noexcept nogil:
    if s.records.own != NULL:
        return cu.CUDA_SUCCESS
    s.records.file = memfd_create(b"gpuferry-events", MFD_CLOEXEC)
    if s.records.file < 0:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    if ftruncate(s.records.file, ARENA_SIZE) == 0:
        s.records.own = map_arena(s, s.records.file)
    if s.records.own == NULL:
        close(s.records.file)
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    return cu.CUDA_SUCCESS


cdef int give_cell(Session *s, Event *event) noexcept nogil:
    """The event's records are what other processes may see. A cell keeps its numbers, whoever has it: what waits for one of
    them goes on."""
    cdef uint64_t *cell
    cdef uint32_t i
    cdef int status = open_own_arena(s)
    if status != cu.CUDA_SUCCESS:
        return status
    for i in range(CELLS):
        cell = &s.records.own.words[i * CELL_WORDS]
        if not (s.records.taken[i >> 6] >> (i & 63)) & 1 and is_complete(cell, load_word(cell)):
            s.records.taken[i >> 6] |= <uint64_t>1 << (i & 63)
            event.arena = s.records.own
            event.cell = i
            return cu.CUDA_SUCCESS
    return cu.CUDA_ERROR_OUT_OF_MEMORY


cdef int open_cell(Session *s, Event *event, uint64_t session, int file, uint64_t offset) noexcept nogil:
    """The event is one that another session has made."""
    cdef Arena *arena = s.records.others
    if offset % (CELL_WORDS * sizeof(uint64_t)) != 0 or offset >= ARENA_SIZE:
        return cu.CUDA_ERROR_INVALID_VALUE
    while arena != NULL and arena.session != session:
        arena = arena.next
    if arena == NULL:
        arena = map_arena(s, file)
        if arena == NULL:
            return cu.CUDA_ERROR_INVALID_VALUE
        arena.session = session
        arena.next = s.records.others
        s.records.others = arena
    event.arena = arena
    event.maker = session
    event.cell = <uint32_t>(offset // (CELL_WORDS * sizeof(uint64_t)))
    s.records.opened += 1
    return cu.CUDA_SUCCESS


cdef void take_cell_back(Session *s, Event *event) noexcept nogil:
    if event.arena == s.records.own:
        s.records.taken[event.cell >> 6] &= ~(<uint64_t>1 << (event.cell & 63))
    else:
        s.records.opened -= 1


cdef bint is_anothers(Session *s, Event *event) noexcept nogil:
    """Whether another process has made it."""
    return event.arena != NULL and event.arena != s.records.own


cdef inline uint64_t *words_of(Event *event) noexcept nogil:
    return &event.arena.words[event.cell * CELL_WORDS]


cdef inline cu.CUdeviceptr slot_on_device(Event *event, uint64_t number) noexcept nogil:
    return event.arena.device + (event.cell * CELL_WORDS + 1 + number % RECORD_SLOTS) * sizeof(uint64_t)


cdef uint64_t last_record(Event *event) noexcept nogil:
    return load_word(words_of(event))


cdef int record_in(Session *s, Context *context, Event *event, cu.CUstream stream) noexcept nogil:
    """From now on this is the last record, for whoever asks."""
    cdef uint64_t number
    cdef int status = register_arena(s, event.arena) or enter(s, context)
    if status != cu.CUDA_SUCCESS:
        return status
    number = atomic_add(words_of(event), 1, ATOMIC_ACQ_REL) + 1
    event.arena.mine[event.cell] = number
    if number > RECORD_SLOTS:               # whose slot it is; so a slot's numbers only grow
        status = cu.cuStreamWaitValue64(stream, slot_on_device(event, number), number - RECORD_SLOTS,
                                        cu.CU_STREAM_WAIT_VALUE_GEQ)
    return status or cu.cuStreamWriteValue64(stream, slot_on_device(event, number), number, 0)


cdef int wait_in(Session *s, Context *context, Event *event, cu.CUstream stream) noexcept nogil:
    """What comes in the stream waits for what is the last record now."""
    cdef uint64_t number = load_word(words_of(event))
    if is_complete(words_of(event), number):
        return cu.CUDA_SUCCESS
    cdef int status = register_arena(s, event.arena) or enter(s, context)
    return status or cu.cuStreamWaitValue64(stream, slot_on_device(event, number), number,
                                            cu.CU_STREAM_WAIT_VALUE_GEQ)


cdef int record_all(Session *s, Context *context, GreenContext *green, Event *event, cu.CUevent joint,
                    cu.CUstream lane) noexcept nogil:
    """In a stream that waits for all of a context's, or a green one's, work."""
    cdef int status
    if green != NULL:
        status = cu.cuGreenCtxRecordEvent(green.cu, joint)
    else:
        status = cu.cuCtxRecordEvent(context.cu, joint)
    status = status or cu.cuStreamWaitEvent(lane, joint, 0) or record_in(s, context, event, lane)
    return status or cu.cuEventRecord(joint, lane)


cdef int wait_all(Session *s, Context *context, GreenContext *green, Event *event, cu.CUevent joint,
                  cu.CUstream lane) noexcept nogil:
    """All that comes in the context, or the green one, waits for a stream that waits."""
    cdef int status = wait_in(s, context, event, lane) or cu.cuEventRecord(joint, lane)
    if green != NULL:
        return status or cu.cuGreenCtxWaitEvent(green.cu, joint)
    return status or cu.cuCtxWaitEvent(context.cu, joint)


cdef int join_all(Session *s, Context *context, GreenContext *green, Event *event, bint wait) noexcept nogil:
    """What is recorded, or waited for, of all work stands in a stream of its own. `reclaim`, behind which nothing
    but the giving back of memory comes, waits for it: so whoever waits for all streams waits for this one."""
    cdef cu.CUevent joint = NULL
    cdef cu.CUstream lane = NULL
    cdef int status = cu.cuEventCreate(&joint, cu.CU_EVENT_DISABLE_TIMING)
    status = status or cu.cuStreamCreate(&lane, cu.CU_STREAM_NON_BLOCKING)
    if status == cu.CUDA_SUCCESS and wait:
        status = wait_all(s, context, green, event, joint, lane)
    elif status == cu.CUDA_SUCCESS:
        status = record_all(s, context, green, event, joint, lane)
    status = status or cu.cuStreamWaitEvent(gpu_in(s, context).reclaim.cu, joint, 0)
    status = status or note_outlived(s, gpu_in(s, context))
    if lane != NULL:
        cu.cuStreamDestroy(lane)    # behind its work
    if joint != NULL:
        cu.cuEventDestroy(joint)
    return status


cdef int event_state(Session *s, Event *event) noexcept nogil:
    """What cuEventQuery says of the event, which other processes may have recorded."""
    cdef int status = cu.cuEventQuery(event.cu)
    if status == cu.CUDA_SUCCESS and event.arena != NULL \
            and not is_complete(words_of(event), load_word(words_of(event))):
        return cu.CUDA_ERROR_NOT_READY
    return status


cdef int await_record(Session *s, Event *event, uint64_t number) noexcept nogil:
    """On a waiter. The event may have been destroyed meanwhile: its words are there as long as the session."""
    cdef unsigned int pause = 50
    cdef int status = cu.cuEventQuery(event.cu)     # of the event itself nothing was recorded: how its context fares
    while status == cu.CUDA_SUCCESS and not is_complete(words_of(event), number) and not s.state.ending:
        usleep(pause)
        pause = min(2 * pause, <unsigned int>1000)
        status = cu.cuEventQuery(event.cu)
    return status


cdef void complete_in(Arena *arena) noexcept nogil:
    cdef uint64_t *cell
    cdef uint64_t last, number
    cdef uint32_t i
    for i in range(CELLS):
        last = arena.mine[i]
        cell = &arena.words[i * CELL_WORDS]
        number = last - RECORD_SLOTS + 1 if last > RECORD_SLOTS else 1
        while number <= last:
            if not is_complete(cell, number):
                atomic_store(slot_of(cell, number), number, ATOMIC_RELEASE)
            number += 1


cdef void complete_records(Session *s) noexcept nogil:
    """The session is over: nobody shall wait for what it recorded."""
    cdef Arena *arena = s.records.others
    if s.records.own != NULL:
        complete_in(s.records.own)
    while arena != NULL:
        complete_in(arena)
        arena = arena.next


cdef void forget_registration(Session *s) noexcept nogil:
    """The primary context is about to be reset."""
    cdef Arena *arena = s.records.others
    while arena != NULL:
        if arena.device != 0:
            cu.cuMemHostUnregister(arena.words)
        arena.device = 0
        arena = arena.next
    if s.records.own != NULL:
        if s.records.own.device != 0:
            cu.cuMemHostUnregister(s.records.own.words)
        s.records.own.device = 0


cdef void end_records(Session *s) noexcept nogil:
    cdef Arena *arena
    forget_registration(s)
    if s.records.own != NULL:
        s.records.own.next = s.records.others
        s.records.others = s.records.own
        close(s.records.file)
    while s.records.others != NULL:
        arena = s.records.others
        s.records.others = arena.next
        munmap(arena.words, ARENA_SIZE)
        free(arena)
    memset(&s.records, 0, sizeof(s.records))


cdef int on_cuEventCreate(Session *s, Frame *f, gf_req_cuEventCreate *q) noexcept nogil:
    cdef cu.CUevent made
    cdef Event *event
    cdef int status = cu.cuEventCreate(&made, q.Flags & ~<uint32_t>cu.CU_EVENT_INTERPROCESS)
    status = status or adopt_event(s, f, q.phEvent, made)
    if status == cu.CUDA_SUCCESS and q.Flags & cu.CU_EVENT_INTERPROCESS:
        find_event(s, f, q.phEvent, &event)
        status = give_cell(s, event)
        if status != cu.CUDA_SUCCESS:
            drop_event(s, event)
    return status


cdef int cuEventQuery_call(Session *s, Frame *f, gf_req_cuEventQuery *q, Event *event) noexcept nogil:
    return event_state(s, event)


cdef int cuStreamWaitEvent_call(Session *s, Frame *f, gf_req_cuStreamWaitEvent *q, Stream *stream,
                                Event *event) noexcept nogil:
    if event.arena != NULL:
        return wait_in(s, f.context, event, stream.cu)
    return cu.cuStreamWaitEvent(stream.cu, event.cu, q.Flags)
