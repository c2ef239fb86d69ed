# Room: records
# Holds: records of events that processes share: a page of words for those made here, and others' for those opened here.
# Lock: none; the dispatcher's. The words are everyone's, and atomic
# Home: records
# Changed by: -
# Read by: sharing
# Offers: await_record complete_records end_records event_state forget_registration is_anothers last_record
#   join_all open_cell record_in take_cell_back

cdef struct Arena:
    uint64_t session            # whose it is
    uint64_t *words
    cu.CUdeviceptr device       # where the device finds them; 0: it was not told yet
    uint64_t mine[CELLS]        # the last record of each that is this session's
    Arena *next

cdef struct Records:
    int file                    # of our own arena, to be given away
    Arena *own
    Arena *others
    uint64_t taken[CELLS / 64]  # bitmap of our own cells
    uint64_t opened             # events that others have made
