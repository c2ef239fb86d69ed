# Room: staging
# Holds: pinned memory between socket and device.
# Lock: none; the dispatcher's, but a slot's references need `lock`
# Home: staging
# Changed by: -
# Read by: -
# Offers: clear_staging close_open_slot forget_staged hold_piece leave_slot let_go_of_slot pin_staging renew_staging
#   reserve_staging take_piece unpin_staging

cdef struct Slot:
    uint8_t *base
    size_t used
    bint open                   # pieces are still cut from it
    int references              # replies that were not sent yet; s.lock
    int streams_count
    Stream *streams[SLOT_STREAMS]
    int events_count            # once closed
    cu.CUevent events[SLOT_STREAMS]
    Context *contexts[SLOT_STREAMS]

cdef struct Staging:
    uint8_t *base
    Slot slots[SLOT_COUNT]
    int open                    # the slot that is; -1: none
