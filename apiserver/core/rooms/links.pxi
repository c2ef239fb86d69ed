# Room: links
# Holds: what the links of the session may hold of host memory.
# Lock: lock
# Home: links
# Changed by: -
# Read by: -
# Offers: begin_links drop_link find_link retire_link run_link

cdef struct Link:               # cuLink*: a link that has not ended
    Object base
    cu.CUlinkState cu
    Lane *lane                  # its steps are done in order
    int steps                   # under way; s.lock
    uint64_t charged            # of what its inputs may hold; s.lock
    vector[PBytes] *inputs      # s.lock
    cu.CUjit_option options[LINK_OPTIONS]   # the driver keeps both arrays
    void *values[LINK_OPTIONS]
    char *error                 # what the driver says of a step
    char *info
    void *image                 # the driver's, once it is complete; s.lock
    size_t size

cdef struct LinkInput:          # of a step that adds one
    uint64_t charge
    cu.CUjitInputType type
    char name[LINK_NAME + 1]
    unsigned int count
    cu.CUjit_option options[LINK_OPTIONS]
    void *values[LINK_OPTIONS]

cdef struct Links:
    uint64_t charged
