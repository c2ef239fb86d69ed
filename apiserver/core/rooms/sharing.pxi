# Room: sharing
# Holds: memory that the processes of a lease share: what this session exported, what it is about to import, and which
#   extents of the book its mappings are.
# Lock: lock; what is per extent or page, `coming` and `left` need book.lock
# Home: shared_moves sharing
# Changed by: -
# Read by: contents
# Offers: awaits_import begin_sharing begins_at carry_nothing carry_orphans deliver_import end_event_export
#   end_extent_exports end_sharing give_up_imports is_imported is_own leave_extents list_exports list_imports
#   list_opened_events next_wanted parts_of_export shares_memory

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

cdef extern from *:
    """
    #define EXTENT_TOKEN "gpuferry: extent"
    """
    const char EXTENT_TOKEN[17]

cdef struct Exported:           # for whoever moves the session
    uint8_t token[GF_TOKEN_SIZE]
    uint64_t address
    uint64_t size
    uint64_t event              # 0: it is memory

cdef struct Imported:
    uint8_t token[GF_TOKEN_SIZE]
    uint64_t session            # the exporter's; 0: that of `seat`
    uint64_t address
    uint64_t size               # 0: it is not mapped yet
    uint32_t seat
    uint32_t context            # in which it was opened, as a header says it; of its device, the primary one

cdef struct OpenedEvent:
    uint8_t token[GF_TOKEN_SIZE]
    uint64_t session
    uint64_t handle
    uint32_t context            # as a header says it

cdef struct Sharing:
    Export *exports
    Import *imports
    uint32_t exported
    uint32_t wanted
    uint32_t numbers            # that were given out, by this process
    uint64_t imported           # mappings of others' memory
    uint32_t *extents           # per page of the window: 1 + the extent of the mapping that starts there; NULL: none yet
    cpp_set[uint64_t] *carried   # pages where mappings begin that nobody has made and this session carries as it moves
    uint8_t *openers            # per page: the place of the device for which the mapping of others' memory was opened
    uint32_t *opened            # per extent: mappings of it that are another's memory
    uint32_t *pending           # per extent: parts of imports that are here and not mapped yet
    uint32_t coming             # imports that are not here yet: whoever answers may have lent any extent to this process
    bint left                   # some have been left meanwhile
