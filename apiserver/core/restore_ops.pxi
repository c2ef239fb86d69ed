# A session that comes from another server (WIRE.md 10, migration/DESIGN.md): its frames come over a link that stands
# for the guest's connection until TAKE OVER. The source is trusted as little as a guest.

cdef enum:
    DESCRIPTOR_LIMIT = 64       # that were sent and not asked for yet
    COPY_PART = 16 << 20
    OUTPUT_MAX = 256 << 20      # more than any honest session has unsent
    SOCKET_BESIDE = 1           # in the flags of TAKE OVER
    RELAYED = 2


cdef void take_descriptors(Session *s, msghdr *message) noexcept nogil:
    cdef cmsghdr *part = CMSG_FIRSTHDR(message)
    cdef size_t count, i
    cdef int fd
    while part != NULL:
        if part.cmsg_level == SOL_SOCKET and part.cmsg_type == SCM_RIGHTS:
            count = (part.cmsg_len - CMSG_LEN(0)) // sizeof(fd)
            for i in range(count):
                memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd))
                if s.arrival.descriptors.size() < DESCRIPTOR_LIMIT:
                    s.arrival.descriptors.push_back(fd)
                else:
                    close(fd)
        part = CMSG_NXTHDR(message, part)


cdef ssize_t receive_beside(Session *s, void *target, size_t size) noexcept nogil:
    """As recv, with the descriptors that come beside the bytes."""
    cdef uint8_t control[1024]
    cdef iovec part
    cdef msghdr message
    cdef ssize_t n
    memset(&message, 0, sizeof(message))
    part.iov_base = target
    part.iov_len = size
    message.msg_iov = &part
    message.msg_iovlen = 1
    message.msg_control = control
    message.msg_controllen = sizeof(control)
    n = recvmsg(s.connection.fd, &message, MSG_CMSG_CLOEXEC)
    if n > 0:
        take_descriptors(s, &message)
    return n


cdef int next_descriptor(Session *s) noexcept nogil:
    """The first that nobody has taken; the caller closes it. -1: there is none."""
    cdef int fd
    if s.arrival.descriptors.empty():
        return -1
    fd = s.arrival.descriptors[0][0]
    s.arrival.descriptors.erase(s.arrival.descriptors.begin())
    return fd


cdef void drop_copy_streams(Session *s) noexcept nogil:
    cdef int i
    for i in range(GF_DEVICES_MAX * COPY_STREAMS):
        if s.arrival.copy_streams[i] != NULL:
            unlink_stream(s, s.arrival.copy_streams[i])
            cu.cuStreamDestroy(s.arrival.copy_streams[i].cu)
            free(s.arrival.copy_streams[i])
            s.arrival.copy_streams[i] = NULL


cdef int copy_stream(Session *s, Gpu *gpu, int turn, Stream **found) noexcept nogil:
    """An ordinary stream to the engine: it waits until new memory is cleared, and its work for whoever comes after."""
    cdef cu.CUstream made
    cdef int i = gpu.place * COPY_STREAMS + turn
    cdef int status
    if s.arrival.copy_streams[i] == NULL:
        status = cu.cuStreamCreate(&made, cu.CU_STREAM_NON_BLOCKING)
        if status != cu.CUDA_SUCCESS:
            return status
        s.arrival.copy_streams[i] = link_stream(s, made, True)
        s.arrival.copy_streams[i].base.context = gpu.primary
    found[0] = s.arrival.copy_streams[i]
    return ready_stream(s, found[0])


cdef int sessionRestoreShare_call(Session *s, Frame *f, gf_req_sessionRestoreShare *q) noexcept nogil:
    cdef cu.CUmemGenericAllocationHandle handle
    cdef int fd = next_descriptor(s)
    cdef uint64_t page = page_of(s, q.address)
    cdef int status
    if fd < 0:
        return malformed(s, f, b"there is no descriptor beside it")
    status = cu.CUDA_SUCCESS if on_pages(s, q.address, q.size) else cu.CUDA_ERROR_INVALID_VALUE
    status = status or prepare_aside(s)
    status = status or synchronize(s)
    status = status or enter(s, s.device.primary)
    status = status or clear_aside(s, page, q.size >> PAGE_BITS)
    status = status or cu.cuMemImportFromShareableHandle(
        &handle, <void *><size_t>fd, cu.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    close(fd)
    if status != cu.CUDA_SUCCESS:
        return status
    status = map_aside(s, page, q.size >> PAGE_BITS, handle)
    if status != cu.CUDA_SUCCESS:
        cu.cuMemRelease(handle)
    return status


cdef int sessionRestoreCopy_call(Session *s, Frame *f, gf_req_sessionRestoreCopy *q) noexcept nogil:
    cdef uint64_t at = 0
    cdef uint64_t some
    cdef Stream *stream
    cdef Gpu *gpu
    cdef int turn = 0
    cdef int status = cu.CUDA_SUCCESS
    if not in_window(s, q.address, q.size) or not is_mapped(s, q.address, q.size) \
            or not is_aside(s, q.address, q.size):
        return cu.CUDA_ERROR_INVALID_VALUE
    while at < q.size and status == cu.CUDA_SUCCESS:
        gpu = gpu_at(s, begins_at(s, page_of(s, q.address + at)))
        some = min(q.size - at, <uint64_t>COPY_PART)
        status = enter(s, gpu.primary)
        status = status or copy_stream(s, gpu, turn, &stream)
        if status == cu.CUDA_SUCCESS:
            stream.dirty = True
            stream.active = True
            status = cu.cuMemcpyDtoDAsync(q.address + at, aside_of(s, q.address + at), some, stream.cu)
        turn = (turn + 1) % COPY_STREAMS
        at += some
    return status


cdef int sessionRestoreHash_call(Session *s, Frame *f, gf_req_sessionRestoreHash *q) noexcept nogil:
    cdef vector[uint64_t] pages
    cdef Piece hashes
    cdef uint64_t i
    cdef int status
    if q.pages > GF_CHUNK // HASH_SIZE:
        return malformed(s, f, b"more than one chunk asked for")
    if not on_pages(s, q.address, q.pages << PAGE_BITS) or not is_mapped(s, q.address, q.pages << PAGE_BITS):
        return cu.CUDA_ERROR_INVALID_VALUE
    for i in range(q.pages):
        pages.push_back(q.address + (i << PAGE_BITS))
    hashes.slot = -1
    hashes.data = <uint8_t *>malloc(q.pages * HASH_SIZE)
    if hashes.data == NULL:
        return cu.CUDA_ERROR_OUT_OF_MEMORY
    status = synchronize(s)
    status = status or enter(s, s.device.primary)
    status = status or hash_pages(s, pages.data(), q.pages, hashes.data)
    if status != cu.CUDA_SUCCESS:
        free(hashes.data)
        return status
    reply(s, f, status, q.pages * HASH_SIZE, hashes)
    return DEFERRED


cdef int sessionRestoreUse_call(Session *s, Frame *f, gf_req_sessionRestoreUse *q, Image *library) noexcept nogil:
    cdef cu.CUmodule module
    cdef int status = cu.cuLibraryGetModule(&module, library.library)
    if status == cu.CUDA_SUCCESS:
        note_use(s, f, &library.base)
    return status


cdef int sessionRestoreVariable_call(Session *s, Frame *f, gf_req_sessionRestoreVariable *q, Image *owner,
                                     const uint8_t *text, size_t length, uint64_t *address, uint64_t *size) noexcept nogil:
    cdef char name[4096]
    cdef int status
    if not text_of(text, length, name, sizeof(name)):
        return cu.CUDA_ERROR_NOT_FOUND
    if owner.module != NULL:
        status = cu.cuModuleGetGlobal(<cu.CUdeviceptr *>address, <size_t *>size, owner.module, name)
    else:
        status = cu.cuLibraryGetGlobal(<cu.CUdeviceptr *>address, <size_t *>size, owner.library, name)
    if status == cu.CUDA_SUCCESS:
        lend_out(s, q.owner, owner, address[0], size[0])
    return status


cdef int sessionRestoreEvent_call(Session *s, Frame *f, gf_req_sessionRestoreEvent *q, Event *event) noexcept nogil:
    cdef Context *context = event.base.context
    if q.age < 0:
        return cu.CUDA_ERROR_INVALID_VALUE
    cdef int status = enter(s, context)
    if context.anchor == NULL:
        status = status or cu.cuEventCreate(&context.anchor, cu.CU_EVENT_DEFAULT)
        status = status or cu.cuEventRecord(context.anchor, <cu.CUstream>cu.CU_STREAM_LEGACY)
    status = status or cu.cuEventRecordWithFlags(event.cu, <cu.CUstream>cu.CU_STREAM_LEGACY, q.flags)
    if status == cu.CUDA_SUCCESS:
        event.recorded = True
        event.flags = q.flags
        event.aged = True
        event.age = q.age
    return status


cdef bint note_calls(Session *s, uint32_t op, const Calls *calls) noexcept nogil:
    """What this build does not know it does not count. False: there is no such number."""
    if op >= OPERATIONS:
        return False
    if request_sizes[op] != MISSING:
        s.arrival.stats.answered[places[op]].succeeded += calls.succeeded
        s.arrival.stats.answered[places[op]].failed += calls.failed
        s.arrival.stats.answered[places[op]].timed += calls.timed
        s.arrival.stats.answered[places[op]].nanoseconds += calls.nanoseconds
    return True


cdef void note_function(Session *s, uint32_t function, uint64_t calls) noexcept nogil:
    if GF_FUNCTION_FIRST <= function <= GF_FUNCTION_LAST:
        s.arrival.stats.unsupported[function - GF_FUNCTION_FIRST] = calls


cdef void begin_counters(Session *s, int latched, uint32_t latched_op) noexcept nogil:
    memset(&s.arrival.stats, 0, sizeof(Stats))
    s.arrival.latched = latched
    s.arrival.latched_op = <uint16_t>latched_op
    s.arrival.counted = True


cdef int sessionRestoreState_call(Session *s, Frame *f, gf_req_sessionRestoreState *q, const uint8_t *counters,
                                  size_t given) noexcept nogil:
    """From a server of the first release: six totals, calls that were not answered, those that were, unsupported ones."""
    cdef size_t totals = 6 * sizeof(uint64_t)
    cdef size_t functions = GF_FIRST_RELEASE_FUNCTION_LAST - GF_FIRST_RELEASE_FUNCTION_FIRST + 1
    cdef size_t size = totals + 2 * GF_FIRST_RELEASE_COUNT * sizeof(Calls) + functions * sizeof(uint64_t)
    cdef Calls calls
    cdef uint64_t count
    cdef size_t i
    if given != size or q.latched_op > 0xffff:
        return malformed(s, f, b"these are no counters")
    begin_counters(s, q.latched, q.latched_op)
    memcpy(&s.arrival.stats, counters, totals)
    counters += totals
    for i in range(2 * GF_FIRST_RELEASE_COUNT):
        memcpy(&calls, counters, sizeof(calls))
        counters += sizeof(calls)
        note_calls(s, gf_first_release[i % GF_FIRST_RELEASE_COUNT], &calls)
    for i in range(functions):
        memcpy(&count, counters, sizeof(count))
        counters += sizeof(count)
        note_function(s, GF_FIRST_RELEASE_FUNCTION_FIRST + i, count)
    return cu.CUDA_SUCCESS


cdef int sessionRestoreCounters_call(Session *s, Frame *f, gf_req_sessionRestoreCounters *q, const uint8_t *counters,
                                     size_t given) noexcept nogil:
    cdef size_t size = <size_t>q.operations * sizeof(gf_counted_calls) + <size_t>q.functions * sizeof(gf_counted_function)
    cdef gf_counted_calls *one = <gf_counted_calls *>counters
    cdef gf_counted_function *function = <gf_counted_function *>(one + q.operations)
    cdef Calls calls
    cdef uint32_t i
    if given != size or q.latched_op > 0xffff:
        return malformed(s, f, b"these are no counters")
    begin_counters(s, q.latched, q.latched_op)
    s.arrival.stats.calls_async = q.calls_async
    s.arrival.stats.calls_sync = q.calls_sync
    s.arrival.stats.bytes_in = q.bytes_in
    s.arrival.stats.bytes_out = q.bytes_out
    s.arrival.stats.launches = q.launches
    s.arrival.stats.busy_nanoseconds = q.busy_nanoseconds
    for i in range(q.operations):
        calls.succeeded = one[i].succeeded
        calls.failed = one[i].failed
        calls.timed = one[i].timed
        calls.nanoseconds = one[i].nanoseconds
        if not note_calls(s, one[i].operation, &calls):
            return malformed(s, f, b"these are no counters")
    for i in range(q.functions):
        note_function(s, function[i].function, function[i].calls)
    return cu.CUDA_SUCCESS


cdef int sessionRestoreResumable_call(Session *s, Frame *f, gf_req_sessionRestoreResumable *q) noexcept nogil:
    if not s.arrival.resumable:
        return malformed(s, f, b"the session does not outlive its connection")
    s.arrival.log = q[0]
    return cu.CUDA_SUCCESS


cdef int sessionRestoreInput_call(Session *s, Frame *f, const uint8_t *data, size_t size) noexcept nogil:
    if s.arrival.input.size() + size > INPUT_MOST:
        return malformed(s, f, b"more input than a session can have")
    append(s.arrival.input, data, size)
    return cu.CUDA_SUCCESS


cdef int sessionRestoreOutput_call(Session *s, Frame *f, gf_req_sessionRestoreOutput *q, size_t size) noexcept nogil:
    cdef size_t had = s.arrival.output.size()
    if had + size > OUTPUT_MAX or (had > 0 and q.head > 0):
        return malformed(s, f, b"more output than a session can have")
    if had == 0:
        s.arrival.head = q.head
    s.arrival.output.resize(had + size)
    return read_payload(s, s.arrival.output.data() + had, size)


cdef int sessionRestoreTls_call(Session *s, Frame *f, const uint8_t *state, size_t size) noexcept nogil:
    cdef char why[REASON_SIZE]
    gf_tls_end(s.arrival.tls)
    s.arrival.tls = gf_tls_restore(state, size, why, sizeof(why))
    return cu.CUDA_SUCCESS if s.arrival.tls != NULL else malformed(s, f, why)


cdef int sessionRestoreDone_call(Session *s, Frame *f, gf_req_sessionRestoreDone *q) noexcept nogil:
    cdef int status = cu.CUDA_SUCCESS
    fill_hollow(s)
    if shares_memory(s):
        status = bind_lacking(s)
    status = status or synchronize(s)
    if status == cu.CUDA_SUCCESS and (s.state.latched != cu.CUDA_SUCCESS or q.mapped_bytes != s.window.used
                                       or not is_covered(s)):
        status = cu.CUDA_ERROR_INVALID_VALUE
    s.arrival.complete = status == cu.CUDA_SUCCESS
    return status


cdef bint consists_of_frames(vector[uint8_t] *output, size_t at) noexcept nogil:
    """From there to the end; others rely on it."""
    cdef uint32_t size
    while output.size() - at >= sizeof(gf_header):
        memcpy(&size, output.data() + at, sizeof(size))
        if size < sizeof(gf_header) or size > output.size() - at:
            return False
        at += size
    return at == output.size()


cdef bint output_is_sound(Session *s) noexcept nogil:
    cdef gf_req_sessionRestoreResumable *log = &s.arrival.log
    cdef uint64_t size = s.arrival.output.size()
    if not s.arrival.resumable:
        return s.arrival.head <= size and consists_of_frames(s.arrival.output, s.arrival.head)
    return log.told <= log.received and log.begin <= log.written and log.written - log.begin <= size \
        and log.begin <= log.boundary and log.boundary - log.begin <= size \
        and consists_of_frames(s.arrival.output, log.boundary - log.begin)


cdef void carry_output(Session *s) noexcept nogil:
    """What the source had not sent, frame by frame after the rest of one."""
    cdef vector[uint8_t] *output = s.arrival.output
    cdef gf_req_sessionRestoreResumable *log = &s.arrival.log
    cdef size_t at = s.arrival.head
    cdef uint32_t size
    pthread_mutex_lock(&s.sending.lock)
    if s.arrival.resumable:
        restore_counts(s, log.received, log.told)
        restore_log(s, log.begin, log.written, log.boundary, output)
    else:
        if not has_nothing_to_write(s):
            wake_sender(s)             # of what was encrypted where it comes from
        pass_on(s, output.data(), at, True)
        while at < output.size():
            memcpy(&size, output.data() + at, sizeof(size))
            pass_on(s, output.data() + at, size, False)
            at += size
    pthread_mutex_unlock(&s.sending.lock)


cdef void settle_in(Session *s, int guest, bint relayed) noexcept nogil:
    """After the answer on the link: from here on this is a session like any other."""
    renew_sender(s)
    take_connection(s, guest, s.arrival.tls, relayed)
    s.arrival.tls = NULL
    if s.arrival.counted:
        restore_stats(s, &s.arrival.stats)
    restore_latched(s, s.arrival.latched, s.arrival.latched_op)
    put_before(s, s.arrival.input)
    if relayed and s.arrival.resumable:
        find_relayed_tail(s, s.input.buffer, s.input.end)
    s.arrival.restoring = False
    serve_only(s, served_sizes)
    carry_output(s)
    end_restore(s)
    s.arrival.taken_over = True
    eventfd_write(s.sending.output.bell, 1)


cdef int sessionRestoreTakeOver_call(Session *s, Frame *f, gf_req_sessionRestoreTakeOver *q) noexcept nogil:
    cdef int guest = -1
    if q.flags & ~<uint32_t>(SOCKET_BESIDE | RELAYED):
        return malformed(s, f, b"unknown flags")
    if not s.arrival.complete:
        return malformed(s, f, b"it was not said to be done")
    if not output_is_sound(s):
        return malformed(s, f, b"the output is not made of frames")
    if not widen_input(s, unread_bytes(s) + s.arrival.input.size()):
        return malformed(s, f, b"more input than a session can have")
    if s.arrival.tls != NULL and not q.flags & SOCKET_BESIDE:
        return malformed(s, f, b"the state of TLS is that of a socket, and none is beside it")
    if q.flags & SOCKET_BESIDE:
        guest = next_descriptor(s)
        if guest < 0 or unread_bytes(s) > 0:
            if guest >= 0:
                close(guest)
            return malformed(s, f, b"no socket beside it, or more behind it")
        if not is_stream_socket(guest):
            close(guest)
            return cu.CUDA_ERROR_INVALID_VALUE
    # A source that cannot hear it has died, or lost its patience: it never serves the session again, so this side does.
    if guest >= 0:
        begin_parting(s)
    reply(s, f, cu.CUDA_SUCCESS, 0, NO_PIECE)
    end_parting(s)
    settle_in(s, guest, guest < 0 or q.flags & RELAYED != 0)
    return DEFERRED


cdef bint is_stream_socket(int fd) noexcept nogil:
    cdef int kind = 0
    cdef socklen_t size = sizeof(kind)
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 and kind == SOCK_STREAM


cdef void begin_arrival(Session *s, bint restore, bint resumable) noexcept nogil:
    """To be restored, it is resumable only once it is here."""
    s.arrival.taken_over = False
    s.arrival.restoring = restore
    s.arrival.resumable = restore and resumable
    if restore:
        serve_only(s, request_sizes)


cdef void end_restore(Session *s) noexcept nogil:
    """Lets go of all that only the way here needed."""
    cdef size_t i
    enter(s, s.device.primary)
    drop_copy_streams(s)
    drop_aside(s)
    drop_hasher(s)
    drop_fillers(s)
    drop_condition_fillers(s)
    take_back_lent(s)
    end_extent_exports(s)
    for i in range(s.arrival.descriptors.size()):
        close(s.arrival.descriptors[0][i])
    s.arrival.descriptors.clear()
    s.arrival.input.clear()
    s.arrival.input.shrink_to_fit()
    s.arrival.output.clear()
    s.arrival.output.shrink_to_fit()
    gf_tls_end(s.arrival.tls)
    s.arrival.tls = NULL
    s.arrival.head = 0
    s.arrival.counted = False
    s.arrival.complete = False
    s.arrival.resumable = False
    s.arrival.latched = cu.CUDA_SUCCESS
    s.arrival.latched_op = 0
    memset(&s.arrival.log, 0, sizeof(s.arrival.log))
