# Pinned memory between socket and device, in slots that are cut into pieces and reused when the device, and the guest
# that is sent a piece, are done with all of them.


cdef void close_slot(Session *s, int index) noexcept nogil:
    """No more pieces: marks how far each stream must get before the slot is free."""
    cdef Slot *slot = &s.staging.slots[index]
    cdef Context *context
    cdef int i
    slot.open = False
    s.staging.open = -1
    for i in range(slot.streams_count):
        context = slot.streams[i].base.context
        enter(s, context)
        slot.events[i] = take_event(s, context)
        slot.contexts[i] = context
        cu.cuEventRecord(slot.events[i], slot.streams[i].cu)
    slot.events_count = slot.streams_count
    slot.streams_count = 0


cdef bint slot_is_free(Session *s, Slot *slot) noexcept nogil:
    cdef int references
    pthread_mutex_lock(&s.lock)
    references = slot.references
    pthread_mutex_unlock(&s.lock)
    if slot.open or references > 0:
        return False
    while slot.events_count > 0:
        if cu.cuEventQuery(slot.events[slot.events_count - 1]) == cu.CUDA_ERROR_NOT_READY:
            return False
        slot.events_count -= 1
        give_event(s, slot.contexts[slot.events_count], slot.events[slot.events_count])
    return True


cdef int open_slot(Session *s) noexcept nogil:
    """The lowest free slot (so that few are ever touched); waits when all are in use. -1: the session ends."""
    cdef int i
    cdef Slot *slot
    cdef int busy
    while not s.state.ending:
        busy = -1
        for i in range(SLOT_COUNT):
            slot = &s.staging.slots[i]
            if slot_is_free(s, slot):
                slot.used = 0
                slot.open = True
                s.staging.open = i
                return i
            if busy < 0 and slot.references == 0 and slot.events_count > 0:     # else it is free by now
                busy = i
        if busy >= 0:
            slot = &s.staging.slots[busy]
            cu.cuEventSynchronize(slot.events[slot.events_count - 1])
        else:
            pthread_mutex_lock(&s.lock)
            wait_briefly(&s.changed, &s.lock)
            pthread_mutex_unlock(&s.lock)
    return -1


cdef bint slot_knows(Slot *slot, Stream *stream) noexcept nogil:
    cdef int i
    for i in range(slot.streams_count):
        if slot.streams[i] == stream:
            return True
    return False


cdef int take_piece(Session *s, size_t size, Stream *stream, Piece *piece) noexcept nogil:
    """Staging for one copy on a stream."""
    cdef size_t rounded = (size + 255) & ~<size_t>255
    cdef Slot *slot
    if s.staging.open >= 0:
        slot = &s.staging.slots[s.staging.open]
        if slot.used + rounded > SLOT_SIZE \
                or (slot.streams_count == SLOT_STREAMS and not slot_knows(slot, stream)):
            close_slot(s, s.staging.open)
    if s.staging.open < 0 and open_slot(s) < 0:
        return ENDED
    enter(s, stream.base.context)
    slot = &s.staging.slots[s.staging.open]
    if not slot_knows(slot, stream):
        slot.streams[slot.streams_count] = stream
        slot.streams_count += 1
    piece.slot = s.staging.open
    piece.data = slot.base + slot.used
    slot.used += rounded
    return cu.CUDA_SUCCESS


cdef void hold_piece(Session *s, Piece *piece) noexcept nogil:
    """The piece stays until its reply is sent."""
    pthread_mutex_lock(&s.lock)
    s.staging.slots[piece.slot].references += 1
    pthread_mutex_unlock(&s.lock)


cdef void renew_staging(Session *s) noexcept nogil:
    """No byte of one guest may reach another through a reply; nor shall an idle server hold memory. Not registered."""
    cdef int i
    madvise(s.staging.base, SLOT_SIZE * SLOT_COUNT, MADV_DONTNEED)
    for i in range(SLOT_COUNT):
        s.staging.slots[i].used = 0


cdef void forget_staged(Session *s, Context *context) noexcept nogil:
    """Closed slots let go of a context's events."""
    cdef Slot *slot
    cdef int i
    cdef int j
    for i in range(SLOT_COUNT):
        slot = &s.staging.slots[i]
        j = 0
        while j < slot.events_count:
            if slot.contexts[j] == context:
                cu.cuEventSynchronize(slot.events[j])
                cu.cuEventDestroy(slot.events[j])
                slot.events_count -= 1
                slot.events[j] = slot.events[slot.events_count]
                slot.contexts[j] = slot.contexts[slot.events_count]
            else:
                j += 1


cdef void close_open_slot(Session *s) noexcept nogil:
    if s.staging.open >= 0:
        close_slot(s, s.staging.open)


cdef void leave_slot(Session *s, Stream *stream) noexcept nogil:
    """No piece is cut any more from a slot that a stream has used: the stream goes."""
    if s.staging.open >= 0 and slot_knows(&s.staging.slots[s.staging.open], stream):
        close_slot(s, s.staging.open)


cdef int pin_staging(Session *s) noexcept nogil:
    return cu.cuMemHostRegister(s.staging.base, SLOT_SIZE * SLOT_COUNT, cu.CU_MEMHOSTREGISTER_PORTABLE)


cdef int unpin_staging(Session *s) noexcept nogil:
    return cu.cuMemHostUnregister(s.staging.base)


cdef int clear_staging(Session *s) noexcept nogil:
    """As renew_staging, of pinned memory that no context was reset under."""
    cdef int i
    cdef int status
    for i in range(SLOT_COUNT):
        slot_is_free(s, &s.staging.slots[i])
    status = unpin_staging(s)
    renew_staging(s)
    return status or pin_staging(s)


cdef void reserve_staging(Session *s) noexcept nogil:
    cdef int i
    s.staging.base = <uint8_t *>reserve(SLOT_SIZE * SLOT_COUNT)
    madvise(s.staging.base, SLOT_SIZE * SLOT_COUNT, MADV_HUGEPAGE)  # each session waits until all of it is pinned
    s.staging.open = -1
    for i in range(SLOT_COUNT):
        s.staging.slots[i].base = s.staging.base + i * SLOT_SIZE


cdef void let_go_of_slot(Session *s, int slot) noexcept nogil:
    """A reply that was made of it is sent."""
    pthread_mutex_lock(&s.lock)
    s.staging.slots[slot].references -= 1
    pthread_cond_broadcast(&s.changed)
    pthread_mutex_unlock(&s.lock)
