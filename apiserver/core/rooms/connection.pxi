# Room: connection
# Holds: the guest's connection, and how much came through it.
# Lock: lock; the dispatcher reads without it what only it changes. Of `tls`, what sends has sending.lock.
# Home: connection socket
# Changed by: receive
# Read by: hold log residency restore_ops scrub send service stillness turn
# Offers: begin_connection detach drop_stale find_relayed_tail guest_moved is_written linger receive_attached
#   receive_some restore_counts resume_session save_tls send_some take_connection wait_for_guest write_rest

cdef struct Connection:
    int fd
    gf_tls *tls                 # NULL: in clear
    bint resumable              # the session outlives it
    bint attached               # it lives, as far as we know
    bint by_link                # the guest speaks by way of where it was before,
    bint following              # and has taken leave there
    bint receiving              # the dispatcher is in recv
    uint64_t received           # bytes after WELCOME
    uint64_t told               # as many of them as the guest knows of
    gf_header relayed_head
    size_t relayed_tail         # bytes at the end of what it sent that begin a header, or are MOVED: not of it, maybe
    size_t relayed_missing      # bytes of the frame whose header was the last to be complete
    size_t stale                # bytes at the end of the buffer that the guest says again, or does not
