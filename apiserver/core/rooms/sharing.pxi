# Room: sharing
# Holds: memory that the processes of a lease share: what this session exported, what it is about to import, and which
#   extents of the book its mappings are.
# Lock: lock; `extents` and `opened` need book.lock
# Home: sharing
# Changed by: -
# Read by: -
# Offers: begin_sharing deliver_import end_event_export end_sharing give_up_imports leave_extents next_wanted parts_of_export
#   shares_memory

cdef struct Export:
    uint8_t token[GF_TOKEN_SIZE]
    uint64_t address            # or where it begins in our arena
    uint64_t size
    Event *event                # it is this one's record; NULL: it is memory
    Export *next

cdef struct Segment:               # physical memory of another process
    int fd
    uint32_t pages
    uint32_t extent             # in the lease's book

cdef struct Import:             # wanted, or here and not mapped yet
    uint8_t token[GF_TOKEN_SIZE]
    uint64_t session            # the exporter's
    uint32_t number
    bint asked                  # the monitor was
    bint here
    Frame frame
    uint64_t offset
    vector[Segment] *parts
    Import *next

cdef struct Sharing:
    Export *exports
    Import *imports
    uint32_t exported
    uint32_t wanted
    uint32_t numbers            # that were given out, by this process
    uint64_t imported           # mappings of others' memory
    uint32_t *extents           # per page of the window: 1 + the extent of the mapping that starts there; NULL: none yet
    uint16_t *opened            # per extent: mappings of it that are another's memory
