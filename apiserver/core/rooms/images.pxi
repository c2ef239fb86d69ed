# Room: images
# Holds: images as they came, and the variables that were handed out of them.
# Lock: lock
# Home: images variables
# Changed by: service
# Read by: -
# Offers: append begin_images borrow_bytes drop_all_bytes drop_function drop_image end_receiving
#   find_function_or_kernel find_kernel find_library find_module find_module_or_library find_variable forget_forms
#   free_image give_back_bytes hand_out hold_made hold_source is_handed_out leave_source lend_out let_go link_module
#   loaded_images managed_block new_image prove_bytes receive_bytes retire_library retire_module review_found run_load
#   take_back_lent text_of

cdef struct Global:
    uint64_t size
    int users                   # images that handed it out

cdef struct Bytes:              # an image as it came
    uint8_t hash[GF_HASH_SIZE]
    uint64_t size
    uint64_t received
    uint8_t *data               # NULL: let go, though something was loaded from it
    int users
    int loads                   # modules and libraries that were loaded from it
    bint verified
    uint64_t last_used

ctypedef Bytes *PBytes

cdef struct Images:
    cpp_map[uint64_t, Global] *globals  # variables that were handed out, by address
    cpp_map[uint64_t, uint64_t] *lent   # of these, what only a move asked for: handles of owners, by address
    vector[PBytes] *held
    cpp_map[uint64_t, uint64_t] *found  # ranges that were looked for by an address in them: size, by address
    uint64_t bytes
    uint64_t clock
