# Room: move
# Holds: what whoever moves the session has in the primary context.
# Lock: move.lock; in a session that is being restored it is the dispatcher's
# Home: hash pointers
# Changed by: contents service
# Read by: aside
# Offers: drop_hasher drop_side_stream end_move hash_pages pointer_into pointer_on_device prepare_side_stream

cdef enum:
    SHAPES = 2

cdef struct Hasher:
    cu.CUmodule module
    cu.CUfunction shapes[SHAPES]
    int best                    # -1: not tried yet
    cu.CUdeviceptr pages
    cu.CUdeviceptr sums

cdef struct Move:
    pthread_mutex_t lock
    Aside aside
    Hasher hasher
    cu.CUstream streams[GF_DEVICES_MAX]     # of each device: they wait for nobody's
    vector[uint64_t] *pinned    # addresses of buffers that are page-locked
