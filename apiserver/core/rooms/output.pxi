# Room: output
# Holds: what kernels print.
# Lock: sending.lock; `bell` never changes, and `resting` is a hint
# Home: output
# Changed by: _core
# Read by: connection restore_ops
# Offers: begin_output capture_output discard_output expect_output forward_output

cdef struct Output:
    int printed                 # our standard output
    long forwarded              # of it to the guest, in bytes
    int bell                    # an eventfd: the shell should look at the session
    bint resting                # the next launch rings it
