# The journal: the frames that made and changed what the session has now, each kept with its object, so that another
# server can be given them (migration/DESIGN.md). s.lock guards it: waiters load images.

cdef enum:
    TAIL_LIMIT = 256 << 20      # bytes of frames that nobody fetched; then the session changes too fast to be moved


cdef inline uint8_t *frame_of(Kept *kept) noexcept nogil:
    return <uint8_t *>(kept + 1)


cdef inline gf_header *header_of(Kept *kept) noexcept nogil:
    return <gf_header *>(kept + 1)


cdef inline uint32_t context_slot(Context *context) noexcept nogil:
    """What a header says of it."""
    return gf_handle_slot(context.base.handle) + 1


cdef uint64_t digest_of(int status, const void *reply, size_t reply_size, const void *payload,
                        size_t size) noexcept nogil:
    """What is remembered of an answer."""
    cdef uint8_t hash[GF_HASH_SIZE]
    cdef uint64_t digest
    cdef vector[uint8_t] text
    append(&text, &status, sizeof(status))
    append(&text, reply, reply_size)
    append(&text, payload, size)
    gf_sha256(text.data(), text.size(), hash)
    memcpy(&digest, hash, sizeof(digest))
    return digest


cdef Kept *new_kept(Frame *f, const void *body, size_t size, uint32_t context, uint64_t answer) noexcept nogil:
    """A frame as it will be replayed; NULL: no memory."""
    cdef Kept *kept = <Kept *>malloc(sizeof(Kept) + sizeof(gf_header) + size)
    cdef gf_header *header
    if kept == NULL:
        return NULL
    kept.next = NULL
    kept.change_link = NULL
    kept.sequence = 2 * f.sequence + (f.op != GF_OP_sessionRestoreUse)
    kept.answer = answer
    kept.size = <uint32_t>(sizeof(gf_header) + size)
    header = header_of(kept)
    header.size = kept.size
    header.op = f.op
    header.flags = 0
    header.request = answers[f.op]
    header.context = context
    memcpy(frame_of(kept) + sizeof(gf_header), body, size)
    return kept


cdef Context *foreign_context(Session *s, Object *graph, Kept *kept) noexcept nogil:
    """In which a node works that the graph may outlive; NULL: in its own, or in one that stays."""
    cdef Context *context = context_in(s, header_of(kept).context)
    if context == NULL or context == graph.context or context == context.gpu.primary:
        return NULL
    return context


cdef void attach(Session *s, Object *object, Kept *kept) noexcept nogil:
    """Keeps a frame with an object. s.lock is held."""
    cdef Context *context = NULL
    spend(s, KEPT_COST + kept.size)
    kept.of_graph = object.kind == GRAPH_EXEC
    kept.next = object.kept
    kept.link = &object.kept
    if kept.next != NULL:
        kept.next.link = &kept.next
    object.kept = kept
    if peer_access_of(kept) != NULL:
        context = <Context *>find(s, peer_access_of(kept).peer, CONTEXT)
    elif object.context == NULL and is_of_context(kept):
        context = context_in(s, header_of(kept).context)
    elif kept.of_graph:
        context = foreign_context(s, object, kept)
    if context != NULL:
        kept.next_change = context.changes
        kept.change_link = &context.changes
        if kept.next_change != NULL:
            kept.next_change.change_link = &kept.next_change
        context.changes = kept


cdef void detach_change(Kept *kept) noexcept nogil:
    """The end of a context does not matter to it any more. s.lock is held."""
    if kept.change_link != NULL:
        kept.change_link[0] = kept.next_change
        if kept.next_change != NULL:
            kept.next_change.change_link = kept.change_link
    kept.change_link = NULL


cdef void detach_kept(Session *s, Kept *kept) noexcept nogil:
    """It is kept no longer. s.lock is held."""
    unspend(s, KEPT_COST + kept.size)
    kept.link[0] = kept.next
    if kept.next != NULL:
        kept.next.link = kept.link
    detach_change(kept)
    free(kept)


cdef void drop_kept(Session *s, Kept **list) noexcept nogil:
    """All that an object keeps. s.lock is held."""
    while list[0] != NULL:
        detach_kept(s, list[0])


cdef void forget_kept(Session *s, Object *object,
                      bint (*stays)(Session *s, uint16_t op, const uint8_t *body) noexcept nogil) noexcept nogil:
    """What was done to an object and is undone, but for frames that stay. `stays` is asked with s.lock held."""
    cdef Kept *kept
    cdef Kept *following
    pthread_mutex_lock(&s.lock)
    following = object.kept
    while following != NULL:
        kept = following
        following = kept.next
        if not stays(s, header_of(kept).op, frame_of(kept) + sizeof(gf_header)):
            detach_kept(s, kept)
    pthread_mutex_unlock(&s.lock)


cdef bint keeps(Object *object, uint16_t op, uint64_t first, uint64_t size) noexcept nogil:
    """Whether a frame of this operation is kept with the object whose first word is in this range. s.lock is held."""
    cdef Kept *kept = object.kept
    cdef uint64_t word
    while kept != NULL:
        if header_of(kept).op == op:
            memcpy(&word, frame_of(kept) + sizeof(gf_header), sizeof(word))
            if word - first < size:
                return True
        kept = kept.next
    return False


cdef void do_again(Session *s, Object *object,
                   void (*act)(Session *s, Object *object, Frame *f) noexcept nogil) noexcept nogil:
    """With each frame that made or changed an object, from the first on."""
    cdef vector[PKept] found
    cdef Kept *kept
    cdef Frame f
    cdef size_t i
    pthread_mutex_lock(&s.lock)
    list_kept(&found, object)
    pthread_mutex_unlock(&s.lock)
    sort(found.begin(), found.end(), is_earlier)
    for i in range(found.size()):
        kept = found[i]
        memset(&f, 0, sizeof(f))
        f.op = header_of(kept).op
        f.context = context_in(s, header_of(kept).context)
        f.body = frame_of(kept) + sizeof(gf_header)
        f.size = kept.size - sizeof(gf_header)
        act(s, object, &f)


cdef void drop_tail(Session *s) noexcept nogil:
    """s.lock is held."""
    cdef Kept *kept
    while s.journal.tail != NULL:
        kept = s.journal.tail
        s.journal.tail = kept.next
        free(kept)
    s.journal.tail_bytes = 0


cdef bint same_change(Replay *replay, Kept *one, Kept *other) noexcept nogil:
    """Whether one of them undoes what the other did."""
    cdef int i
    cdef size_t at, size
    if header_of(one).op != header_of(other).op or header_of(one).context != header_of(other).context:
        return False
    for i in range(replay.spans):
        at = sizeof(gf_header) + replay.by[i].offset
        size = replay.by[i].size
        if size == REST:
            if one.size != other.size:
                return False
            size = one.size - at
        if memcmp(frame_of(one) + at, frame_of(other) + at, size) != 0:
            return False
    return True


cdef void append_tail(Session *s, Kept *kept) noexcept nogil:
    """Takes the frame. s.lock is held."""
    if kept == NULL or s.journal.tail_bytes + kept.size > TAIL_LIMIT:
        s.journal.tail_lost = True
        free(kept)
        return
    s.journal.tail_bytes += kept.size
    if s.journal.tail == NULL:
        s.journal.tail = kept
    else:
        s.journal.tail_end.next = kept
    s.journal.tail_end = kept


cdef uint32_t context_of(Replay *replay, Object *object, Frame *f) noexcept nogil:
    """The context that is to be current when the frame is replayed: one that lives as long as the frame is kept."""
    if object == NULL:
        return 0
    if object.kind == GRAPH_EXEC and f.context != NULL:     # a node of a graph works in a context of its own
        return context_slot(f.context)
    if object.kind != CONTEXT and object.context != NULL:
        return context_slot(object.context)
    if replay.context == KEPT_WITHOUT:
        return 0
    return 1 if replay.context == KEPT_IN_ANY else context_slot(f.context)


cdef void keep(Session *s, Frame *f, const void *body, size_t size, uint64_t answer) noexcept nogil:
    """Keeps a frame that has succeeded."""
    cdef Replay *replay = &replays[places[f.op]]
    cdef Object *object = NULL
    cdef uint64_t handle
    cdef int kind
    cdef Kept *kept
    cdef Kept *old
    pthread_mutex_lock(&s.lock)
    if replay.handle == CURRENT_CONTEXT:
        object = &f.context.base
    elif lasting[f.op] != LASTING_DESTROY:
        memcpy(&handle, <const uint8_t *>body + replay.handle, sizeof(handle))
        kind = <int>gf_handle_kind(handle)
        object = find(s, handle, kind) if kind < KINDS else NULL
    if object != NULL:
        kept = new_kept(f, body, size, context_of(replay, object, f), answer)
        if kept == NULL:
            s.journal.unkept = True
        else:
            old = object.kept if lasting[f.op] == LASTING_SET else NULL
            while old != NULL and not same_change(replay, old, kept):
                old = old.next
            if old != NULL and f.reply_size > 0 and old.answer == answer:
                free(kept)      # told before, and what came since may use it
            else:
                if old != NULL:
                    detach_kept(s, old)
                attach(s, object, kept)
    if s.journal.tailing:
        append_tail(s, new_kept(f, body, size, context_of(replay, object, f), answer))
    pthread_mutex_unlock(&s.lock)


cdef void follow(Session *s, Frame *f) noexcept nogil:
    """Puts a frame on the tail that no object keeps: what it leaves behind is looked up when it is wanted."""
    if s.journal.tailing:
        pthread_mutex_lock(&s.lock)
        append_tail(s, new_kept(f, f.body, f.size, 0, 0))
        pthread_mutex_unlock(&s.lock)


cdef void note_use(Session *s, Frame *f, Object *library) noexcept nogil:
    """A context has used a library: if for the first time, it got its variables there, and where they lie depends on
    what was used before."""
    cdef Kept *kept
    cdef Frame use
    cdef uint32_t slot = context_slot(f.context)
    pthread_mutex_lock(&s.lock)
    kept = library.kept
    while kept != NULL and (header_of(kept).op != GF_OP_sessionRestoreUse or header_of(kept).context != slot):
        kept = kept.next
    if kept == NULL:
        memset(&use, 0, sizeof(use))
        use.op = GF_OP_sessionRestoreUse
        use.sequence = f.sequence
        kept = new_kept(&use, &library.handle, sizeof(library.handle), slot, 0)
        if kept == NULL:
            s.journal.unkept = True
        else:
            attach(s, library, kept)
        if s.journal.tailing:
            append_tail(s, new_kept(&use, &library.handle, sizeof(library.handle), slot, 0))
    pthread_mutex_unlock(&s.lock)


cdef inline bint is_of_context(Kept *kept) noexcept nogil:
    """Whether what was done is undone by the end of the context in which it was."""
    cdef uint16_t op = header_of(kept).op
    return op == GF_OP_sessionRestoreUse or replays[places[op]].context == KEPT_IN_ITS_OWN


cdef void forget_changes(Session *s, Context *context) noexcept nogil:
    """What was set in a context goes with it, whatever it was set on; who may reach it may so still if it is a
    primary one, which is reset, and else need not be told again. Graphs keep the nodes that worked there, though those
    cannot be launched: made in the primary context they have the numbers that they had."""
    cdef Kept *kept
    cdef Kept *following
    cdef bint stays = context == context.gpu.primary
    pthread_mutex_lock(&s.lock)
    if stays:
        drop_kept(s, &context.base.kept)
    following = context.changes
    while following != NULL:
        kept = following
        following = kept.next_change
        if kept.of_graph:
            header_of(kept).context = context_slot(context.gpu.primary)
            detach_change(kept)
        elif not stays or peer_access_of(kept) == NULL:
            detach_kept(s, kept)
    pthread_mutex_unlock(&s.lock)


cdef void write_down(vector[uint8_t] *out, Kept *kept) noexcept nogil:
    """Digest, then the frame, which says how long it is."""
    append(out, &kept.answer, sizeof(kept.answer))
    append(out, frame_of(kept), kept.size)


cdef inline gf_req_sessionPeerAccess *peer_access_of(Kept *kept) noexcept nogil:
    """What it says of a peer; NULL: it is another operation."""
    if header_of(kept).op != GF_OP_sessionPeerAccess:
        return NULL
    return <gf_req_sessionPeerAccess *>(frame_of(kept) + sizeof(gf_header))


cdef void list_kept(vector[PKept] *found, Object *object) noexcept nogil:
    """A peer that may not be reached any more need not be named."""
    cdef Kept *kept = object.kept
    while kept != NULL:
        if peer_access_of(kept) == NULL or peer_access_of(kept).enable:
            found.push_back(kept)
        kept = kept.next


cdef void list_all_kept(Session *s, vector[PKept] *found, Object *object) noexcept nogil:
    """Of an object and what it owns. s.lock is held."""
    cdef Object *owned = youngest(s, object)
    list_kept(found, object)
    while owned != NULL:
        list_all_kept(s, found, owned)
        owned = next_elder(s, owned)


cdef bint is_earlier(Kept *one, Kept *other) noexcept nogil:
    return one.sequence < other.sequence


cdef void write_frame(vector[uint8_t] *out, uint16_t op, const void *body, size_t size) noexcept nogil:
    """A frame that nobody kept, in no context."""
    cdef Frame f
    cdef Kept *kept
    memset(&f, 0, sizeof(f))
    f.op = op
    kept = new_kept(&f, body, size, 0, 0)
    if kept != NULL:
        write_down(out, kept)
        free(kept)


cdef void write_devices(Session *s, vector[uint8_t] *out) noexcept nogil:
    """The frames that number the devices as the program sees them, and open their pools."""
    cdef gf_req_sessionDevices devices
    cdef gf_req_sessionReach reach
    cdef int i, j
    if s.device.chosen:
        memset(&devices, 0, sizeof(devices))
        devices.count = s.device.visible
        for i in range(s.device.visible):
            devices.order[i] = <uint8_t>s.device.shown[i].place
        write_frame(out, GF_OP_sessionDevices, &devices, sizeof(devices))
    for i in range(s.device.visible):
        for j in range(s.device.visible):
            if s.device.shown[i].pools_reached_by >> s.device.shown[j].place & 1:
                reach.owner = i
                reach.device = j
                write_frame(out, GF_OP_sessionReach, &reach, sizeof(reach))


cdef void write_map(Session *s, vector[uint8_t] *out, uint64_t page) noexcept nogil:
    """The frame that makes the mapping that begins there."""
    cdef gf_req_sessionMemMap map
    cdef gf_req_sessionMemMapOn map_on
    map.address = map_on.address = s.window.base + (page << PAGE_BITS)
    map.size = map_on.size = <uint64_t>s.window.pages[page] << PAGE_BITS
    if s.device.count == 1:
        write_frame(out, GF_OP_sessionMemMap, &map, sizeof(map))
    else:
        map_on.device = number_of(s, gpu_at(s, page))
        write_frame(out, GF_OP_sessionMemMapOn, &map_on, sizeof(map_on))


cdef void write_maps(Session *s, vector[uint8_t] *out) noexcept nogil:
    """The frames that map what this session has mapped of its own. The dispatcher stands still."""
    cdef uint64_t page = 0
    while page < s.window.reached:
        if is_own(s, page):
            write_map(s, out, page)
            page += s.window.pages[page]
        else:
            page += 1
    write_aliases(s, out, False)


cdef void write_journal(Session *s, vector[uint8_t] *out) noexcept nogil:
    """Everything that is kept, in the order in which it came; the tail begins. The dispatcher stands still."""
    cdef vector[PKept] found
    cdef size_t i
    cdef int place
    write_devices(s, out)
    write_maps(s, out)
    pthread_mutex_lock(&s.lock)
    for place in range(s.device.count):
        list_all_kept(s, &found, <Object *>gpu_at_place(s, place).primary)
    list_all_kept(s, &found, &s.objects.root)
    sort(found.begin(), found.end(), is_earlier)
    for i in range(found.size()):
        write_down(out, found[i])
    drop_tail(s)
    s.journal.tail_lost = False
    s.journal.tailing = True
    pthread_mutex_unlock(&s.lock)


cdef void write_tail(Session *s, vector[uint8_t] *out) noexcept nogil:
    """What came since it was last asked for."""
    cdef Kept *kept
    pthread_mutex_lock(&s.lock)
    kept = s.journal.tail
    while kept != NULL:
        write_down(out, kept)
        kept = kept.next
    drop_tail(s)
    pthread_mutex_unlock(&s.lock)


cdef void end_tail(Session *s) noexcept nogil:
    pthread_mutex_lock(&s.lock)
    s.journal.tailing = False
    drop_tail(s)
    pthread_mutex_unlock(&s.lock)


cdef void begin_journal(Session *s) noexcept nogil:
    s.journal.unkept = False
