# Room: journal
# Holds: the tail: frames for whoever moves the session. Other frames are kept with their objects.
# Lock: lock; `tailing` is also read without it
# Home: journal
# Changed by: -
# Read by: memory session_ops stillness
# Offers: begin_journal context_slot digest_of do_again drop_kept end_tail follow forget_changes forget_kept keep
#   keeps note_use write_frame write_journal write_tail

cdef struct Kept:               # the frame follows
    Kept *next
    Kept **link                 # what points to it
    Kept *next_change           # of those that end with the same context, or are a graph's
    Kept **change_link          # NULL: it ends with what it is kept with, and not before
    uint64_t sequence
    uint64_t answer             # digest of what was answered; 0: nothing was
    uint32_t size
    bint of_graph

ctypedef Kept *PKept

cdef struct Journal:
    bint tailing                # lasting frames are also put on the tail; the dispatcher looks without the lock
    Kept *tail
    Kept *tail_end
    size_t tail_bytes
    bint tail_lost
    bint unkept                 # there was no memory for a frame
