# Room: arrays
# Holds: textures and surfaces that only keep numbers from others, in a session that
#   comes from another server.
# Lock: none; the dispatcher's
# Home: arrays textures
# Changed by: -
# Read by: -
# Offers: begin_arrays drop_array drop_fillers find_array list_arrays read_array retire_array

cdef struct Array:
    Object base
    cu.CUarray cu
    uint64_t bytes              # of the quota
    uint64_t row                # bytes of one
    uint64_t rows
    uint64_t layers

cdef struct Filler:
    uint64_t value
    bint surface

cdef struct Arrays:
    vector[Filler] *fillers
