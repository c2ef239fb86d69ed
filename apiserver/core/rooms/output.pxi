# Room: output
# Holds: what kernels print, and what a simulated device says.
# Lock: sending.lock; `bell` never changes, and `resting` is a hint
# Home: output
# Changed by: service
# Read by: connection residency restore_ops sharing
# Offers: begin_output capture_output discard_output expect_output forward_output prepare_messages

cdef struct Output:
    int printed                 # our standard output
    uint64_t forwarded          # of it to the guest, in bytes
    int said                    # what a simulated device writes beside the standard error
    uint64_t said_forwarded
    int bell                    # an eventfd: the shell should look at the session
    bint resting                # the next launch rings it
