# Room: arrays
# Holds: textures and surfaces that only keep numbers from others, and those that lack what
#   they read, in a session that comes from another server.
# Lock: none; the dispatcher's
# Home: arrays mipmaps references textures
# Changed by: -
# Read by: -
# Offers: begin_arrays bind_lacking box_copy box_lies_in drop_array drop_fillers drop_mipmapped_array
#   drop_texture_reference find_array find_mipmapped_array find_texture_reference from_array lapse list_arrays
#   read_array retire_array retire_mipmapped_array retire_texture_reference to_array

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

cdef struct TextureReference:
    Object base
    cu.CUtexref cu
    bint created                # by cuTexRefCreate: no variable of a module

cdef struct Filler:
    uint64_t value
    bint surface

cdef struct Arrays:
    vector[Filler] *fillers
    vector[uint64_t] *lacking   # handles of what reads an array or memory that was not there when it came
