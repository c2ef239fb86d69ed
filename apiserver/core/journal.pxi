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


cdef void free_kept(Kept **list) noexcept nogil:
    cdef Kept *kept
    while list[0] != NULL:
        kept = list[0]
        list[0] = kept.next
        free(kept)


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
    cdef Kept **link
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
            link = &object.kept
            while lasting[f.op] == LASTING_SET and link[0] != NULL:
                if same_change(replay, link[0], kept):
                    old = link[0]
                    link[0] = old.next
                    free(old)
                    break
                link = &link[0].next
            kept.next = object.kept
            object.kept = kept
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
            kept.next = library.kept
            library.kept = kept
        if s.journal.tailing:
            append_tail(s, new_kept(&use, &library.handle, sizeof(library.handle), slot, 0))
    pthread_mutex_unlock(&s.lock)


cdef inline bint goes_with(Kept *kept, Context *context) noexcept nogil:
    cdef gf_header *header = header_of(kept)
    return header.context == context_slot(context) \
        and (header.op == GF_OP_sessionRestoreUse or replays[places[header.op]].context == KEPT_IN_ITS_OWN)


cdef void forget_changes(Session *s, Context *context) noexcept nogil:
    """What was set in a context goes with it, whatever it was set on."""
    cdef Object *object
    cdef Kept **link
    cdef Kept *gone
    pthread_mutex_lock(&s.lock)
    if context == s.device.primary:
        free_kept(&context.base.kept)
    object = s.objects.first
    while object != NULL:
        link = &object.kept
        while object.context == NULL and link[0] != NULL:
            if goes_with(link[0], context):
                gone = link[0]
                link[0] = gone.next
                free(gone)
            else:
                link = &link[0].next
        object = object.next
    pthread_mutex_unlock(&s.lock)


cdef void write_down(vector[uint8_t] *out, Kept *kept) noexcept nogil:
    """Digest, then the frame, which says how long it is."""
    append(out, &kept.answer, sizeof(kept.answer))
    append(out, frame_of(kept), kept.size)


cdef void list_kept(vector[PKept] *found, Object *object) noexcept nogil:
    cdef Kept *kept = object.kept
    while kept != NULL:
        found.push_back(kept)
        kept = kept.next


cdef bint is_earlier(Kept *one, Kept *other) noexcept nogil:
    return one.sequence < other.sequence


cdef void write_maps(Session *s, vector[uint8_t] *out) noexcept nogil:
    """The frames that map what is mapped. The dispatcher stands still."""
    cdef Frame f
    cdef gf_req_sessionMemMap map
    cdef Kept *kept
    cdef uint64_t page = 0
    cdef uint64_t pages = s.window.size >> PAGE_BITS
    memset(&f, 0, sizeof(f))
    f.op = GF_OP_sessionMemMap
    while page < pages:
        if is_backed(s, page):
            map.address = s.window.base + (page << PAGE_BITS)
            map.size = <uint64_t>s.window.pages[page] << PAGE_BITS
            kept = new_kept(&f, &map, sizeof(map), 0, 0)
            if kept != NULL:
                write_down(out, kept)
                free(kept)
            page += s.window.pages[page]
        else:
            page += 1


cdef void write_journal(Session *s, vector[uint8_t] *out) noexcept nogil:
    """Everything that is kept, in the order in which it came; the tail begins. The dispatcher stands still."""
    cdef vector[PKept] found
    cdef Object *object
    cdef size_t i
    write_maps(s, out)
    pthread_mutex_lock(&s.lock)
    list_kept(&found, <Object *>s.device.primary)
    object = s.objects.first
    while object != NULL:
        list_kept(&found, object)
        object = object.next
    sort(found.begin(), found.end(), is_earlier)
    for i in range(found.size()):
        write_down(out, found[i])
    free_kept(&s.journal.tail)
    s.journal.tail_bytes = 0
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
    free_kept(&s.journal.tail)
    s.journal.tail_bytes = 0
    pthread_mutex_unlock(&s.lock)


cdef void end_tail(Session *s) noexcept nogil:
    pthread_mutex_lock(&s.lock)
    s.journal.tailing = False
    free_kept(&s.journal.tail)
    s.journal.tail_bytes = 0
    pthread_mutex_unlock(&s.lock)


cdef void begin_journal(Session *s) noexcept nogil:
    s.journal.unkept = False
