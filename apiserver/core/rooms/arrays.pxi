# Room: arrays
# Holds: textures and surfaces that only keep numbers from others, in a session that
#   comes from another server.
# Lock: none; the dispatcher's
# Home: arrays mipmaps textures
# Changed by: -
# Read by: -
# Offers: begin_arrays drop_array drop_fillers drop_mipmapped_array find_array find_mipmapped_array list_arrays
#   read_array retire_array retire_mipmapped_array

cdef struct Array:
    Object base
    cu.CUarray cu
    uint64_t bytes              # of the quota
    uint64_t row                # bytes of one
    uint64_t rows
    uint64_t layers
    bint part                   # a level, which is not charged and ends with its mipmapped array

cdef struct Mipmap:
    Object base
    cu.CUmipmappedArray cu
    cu.CUDA_ARRAY3D_DESCRIPTOR desc
    uint64_t bytes              # of the quota
    uint32_t levels

cdef struct Filler:
    uint64_t value
    bint surface

cdef struct Arrays:
    vector[Filler] *fillers
