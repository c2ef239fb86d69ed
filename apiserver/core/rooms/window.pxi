# Room: window
# Holds: which pages of the reserved range are backed, and by what.
# Lock: window.lock; `mapped` needs it, `unmaps` and `lane` need `lock`, and the rest is the dispatcher's
# Home: memory
# Changed by: -
# Read by: aliases aside book contents context_ops journal residence residency restore_ops scrub service shared_moves
#   sharing
# Offers: admit_behind_work all_marked allow_access begin_window check_unmapped gpu_at in_window is_backed is_mapped is_there_still
#   last_page map_memory mark mark_pages may_read may_touch may_write next_mapping note_touched on_pages open_memory page_of
#   place reach release_mapping renew_mapping reserve_window run_unmap set_access unmap_all unmap_behind_work
#   unmap_memory wait_for_unmaps

cdef struct Window:
    pthread_mutex_t lock
    uint64_t base
    uint64_t size
    uint64_t quota
    uint64_t used               # bytes that are mapped
    uint32_t *pages             # per page of the window: length of the mapping that starts there
    uint64_t *handles
    uint8_t *devices            # whose memory that is: places
    uint64_t *serials           # which of the mappings that began there
    uint64_t reached            # no page from there on has ever been mapped
    uint64_t serial
    uint64_t *mapped            # bitmap of pages
    uint64_t *touched           # bitmap of pages that launches named, while the tail is written
    Task *unmaps                # under way
    Lane lane                   # of theirs
