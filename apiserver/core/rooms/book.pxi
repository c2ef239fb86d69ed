# Room: book
# Holds: how much of the quota is claimed, where the processes of a program share one lease.
# Lock: book.lock
# Home: book
# Changed by: -
# Read by: shared_moves sharing
# Offers: admit begin_book claim_memory claimed discharge enter_extent hand_over has_extent is_covered is_first_of_orphan
#   keep_memory maker_of others_have share_lease take_orphan tell_shared

cdef struct Book:
    pthread_mutex_t lock
    int file                    # what all processes of the lease have claimed; below 0: there is only this one
    uint32_t seat               # which of it is this session's
    gf_shared_extent *extents          # of the lease, in the file; NULL: there is none, or it has none
    uint8_t *has                # behind them: by seat and extent
    gf_seat_devices *devices    # behind these: what seats have claimed of the devices but the first
