# Room: input
# Holds: what came from the socket and was not looked at.
# Lock: none; the dispatcher's
# Home: receive
# Changed by: session_ops
# Read by: output restore_ops scrub stillness
# Offers: begin_input drop_last limit_to pass_rest put_before read_ahead read_payload refuse_payload reserve_input serve_frames
#   serve_only unread_bytes widen_input

cdef struct Input:
    uint8_t *buffer
    size_t room                 # of it, in bytes
    size_t begin
    size_t end
    uint64_t sequence
    const uint16_t *sizes       # of the operations that are served
    bint limited                # the guest and this build lay out only some operations alike:
    uint8_t spoken[OPERATIONS]  # these
    unsigned int turn           # of the calls that are not answered one in so many is timed
    bint closed                 # sessionClose was read
