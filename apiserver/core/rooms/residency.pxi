# Room: residency
# Holds: whether the session's memory is on the device, how much of it may be there, and what was written since a copy was made.
# Lock: lock; `written` and `changes` are the dispatcher's, or whoever's for whom it stands still
# Home: residency
# Changed by: residence service
# Read by: receive
# Offers: ask_room await_memory awaits_room begin_growth begin_residency bring_back clear_pages drop_growth end_copies forget_written hung_up is_allowed is_blank is_physical is_quiet
#   limit_room may_be_there note_quiet note_work note_written pin_copy read_pages refuse_room says_something send_away settle_back
#   take_wish taken_on unpin_copy write_pages

cdef enum:
    COPIERS = 4

cdef struct Residency:
    bint absent                 # nothing is on the device: the dispatcher waits before the next call
    bint unmapped               # so are the pages that show memory elsewhere
    bint waiting                # the dispatcher does: for its memory, or for room
    bint in_call                # and within a call, so that it cannot be held until it has it
    bint leaving                # somebody takes the memory away, and may do so even in the middle of a call that waits for room
    bint wished                 # the dispatcher wants room, or its memory,
    bint told                   # and the monitor was told
    bint refused                # there is none
    uint64_t allowance          # bytes that may be on the device
    uint64_t wanted             # as many, for what the dispatcher is about to do
    uint64_t changes            # grows with everything that may change what is mapped, or what it holds
    uint64_t launches           # grows with everything that may have written anywhere
    uint64_t quiet_since        # when the dispatcher began to wait for its guest; 0: it does not
    uint64_t *written           # bitmap of pages, by calls that say where they write; NULL: there is none
    cu.CUstream copiers[COPIERS]
    vector[uint64_t] *pinned    # addresses of copies that are page-locked
