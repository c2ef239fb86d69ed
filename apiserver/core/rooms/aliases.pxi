# Room: aliases
# Holds: pages of the window that show the physical memory of others: the program's own virtual memory.
# Lock: none; the dispatcher's, but for `pages`, which a waiter clears once the mapping is gone
# Home: aliases
# Changed by: -
# Read by: -
# Offers: alias_memory aliased_within end_alias ends_alias has_alias mark_homes permit show_again unalias_all unalias_memory unmap_shown write_aliases

cdef struct Aliases:
    uint32_t *pages             # per page of the window: length of the alias that starts there; NULL: there never was one
    uint32_t *homes             # the page where its physical memory is at home
    uint64_t *access            # CUmemAccess_flags of each device, two bits for its place
    uint32_t *shown             # per page: aliases of the mapping that starts there
    uint64_t *taken             # bitmap of pages, whether they may be touched or not
    uint64_t count
