# Room: objects
# Holds: the guest's handles, and all that they name.
# Lock: lock; the dispatcher, which alone changes tables, reads them without
# Home: handles
# Changed by: -
# Read by: context_ops images journal scrub streams
# Offers: context_in find find_any forget put put_primary reserve_tables

cdef struct Entry:
    Object *object              # NULL: free
    uint16_t generation

cdef struct Objects:
    Entry *tables[KINDS]        # the dispatcher reads them without the lock
    Object *first
