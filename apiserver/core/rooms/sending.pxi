# Room: sending
# Holds: what goes to the guest.
# Lock: sending.lock; `queued` is also read without it, as a hint
# Home: send
# Changed by: connection log
# Read by: output
# Offers: begin_parting begin_sending drop_unsent end_parting expect freeze has_nothing_to_write pass_on push refuse
#   release_piece renew_sender reply settle settle_older stop_sender unsent_head wait_for_room wake_sender write_some write_unsent

cdef struct Outgoing:           # what the socket did not take at once
    uint8_t head[HEAD_SIZE]
    size_t head_size
    size_t payload_size
    size_t sent
    Piece piece
    bint torn                   # the rest of a frame
    Outgoing *next

cdef struct Sending:
    pthread_mutex_t lock
    pthread_cond_t sendable
    pthread_cond_t drained
    pthread_t thread            # the sender
    bint started
    bint stopping
    bint unwritable
    bint parting                # from the link of a source, whose end is nothing to us: the guest's socket is here
    bint frozen                 # nothing more is written: it is taken along
    Outgoing *queue
    Outgoing *queue_tail
    size_t queued               # bytes; of the log what is not written yet
    Task *outstanding           # copies out, in order of dispatch
    Task *outstanding_tail
    Log log                     # of a resumable session, in place of the queue
    Output output
