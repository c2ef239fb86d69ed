# Room: arrival
# Holds: what only a session needs that comes from another server.
# Lock: none; the dispatcher's
# Home: restore_ops
# Changed by: service
# Read by: book codec conditionals graph_nodes graphs receive residency textures turn
# Offers: begin_arrival drop_copy_streams end_restore receive_beside

cdef struct Arrival:
    bint restoring              # it comes from another server, and is not here yet
    bint taken_over
    vector[int] *descriptors    # that came beside frames
    Stream *copy_streams[GF_DEVICES_MAX * COPY_STREAMS]    # of each device
    # What the session will have.
    gf_tls *tls                 # of its guest's socket
    Stats stats
    bint counted                # `stats` came
    int latched
    uint16_t latched_op
    bint resumable
    gf_req_sessionRestoreResumable log
    vector[uint8_t] *input
    vector[uint8_t] *output
    uint32_t head               # of output: the rest of a frame
    bint complete               # and verified
