# Room: aside
# Holds: physical memory a second time, at the same offset of another range.
# Lock: move.lock; in a session that is being restored it is the dispatcher's
# Home: aside
# Changed by: contents
# Read by: memory
# Offers: alias_mappings aside_of clear_aside descriptor drop_aside drop_aside_idle drop_unwanted is_aside map_aside
#   prepare_aside read_aside read_by retain

cdef struct Aside:
    uint64_t base               # 0: not reserved yet
    uint32_t *pages             # as the window's
    uint64_t *handles
    uint64_t *serials
    uint64_t *mapped
    bint unwanted               # it is only kept because to unmap it might have to wait for the device
