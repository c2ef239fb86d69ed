# Room: objects
# Holds: the guest's handles, and all that they name.
# Lock: lock; the dispatcher, which alone changes tables, reads them without
# Home: handles
# Changed by: context_ops journal scrub
# Read by: service
# Offers: context_in find find_any first_owned forget next_elder put put_primaries put_under reserve_tables youngest

cdef struct Entry:
    Object *object              # NULL: free
    uint16_t generation

cdef struct Objects:
    Entry *tables[KINDS]        # the dispatcher reads them without the lock
    Object root                 # owns what is the session's
    uint64_t steps              # objects looked at one after another, for tests
