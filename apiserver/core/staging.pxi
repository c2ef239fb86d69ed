# Pinned memory between socket and device, in slots that are cut into pieces and reused when the device, and the guest
# that is sent a piece, are done with all of them.


cdef void close_slot(Session *s, int index) noexcept nogil:
    """No more pieces: marks how far each stream must get before the slot is free."""
    cdef Slot *slot = &s.slots[index]
    cdef Context *context
    cdef int i
    slot.open = False
    s.open_slot = -1
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
    while not s.ending:
        busy = -1
        for i in range(SLOT_COUNT):
            slot = &s.slots[i]
            if slot_is_free(s, slot):
                slot.used = 0
                slot.open = True
                s.open_slot = i
                return i
            if busy < 0 and slot.references == 0:
                busy = i
        if busy >= 0:
            slot = &s.slots[busy]
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
    if s.open_slot >= 0:
        slot = &s.slots[s.open_slot]
        if slot.used + rounded > SLOT_SIZE \
                or (slot.streams_count == SLOT_STREAMS and not slot_knows(slot, stream)):
            close_slot(s, s.open_slot)
    if s.open_slot < 0 and open_slot(s) < 0:
        return ENDED
    enter(s, stream.base.context)
    slot = &s.slots[s.open_slot]
    if not slot_knows(slot, stream):
        slot.streams[slot.streams_count] = stream
        slot.streams_count += 1
    piece.slot = s.open_slot
    piece.data = slot.base + slot.used
    slot.used += rounded
    return cu.CUDA_SUCCESS


cdef void hold_piece(Session *s, Piece *piece) noexcept nogil:
    """The piece stays until its reply is sent."""
    pthread_mutex_lock(&s.lock)
    s.slots[piece.slot].references += 1
    pthread_mutex_unlock(&s.lock)
