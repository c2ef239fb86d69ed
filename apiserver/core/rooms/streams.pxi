# Room: streams
# Holds: streams, and the fences that order work across them.
# Lock: none; the dispatcher's, or of whoever looks while it stands still
# Home: streams
# Changed by: -
# Read by: arrays host_calls memory scrub session_ops
# Offers: adopt_event adopt_stream cover_all_copies device_is_idle drop_event drop_stream event_ages fence find_event find_plain_event
#   find_stream forget_fences furnish_streams join link_stream note_copies publish ready_stream reserve_streams
#   retire_event retire_stream stream_state synchronize unlink_stream use_stream

cdef struct Streams:
    Stream *first
    Stream *order               # carries fences and the clearing of new memory
    Stream *reclaim             # what unmaps must wait for
    cu.CUstream feed            # copies that streams wait for; it waits for nothing
    cu.CUevent fence
    uint64_t epoch
    bint unpublished            # `order` carries work of streams that are gone, not yet behind a fence
