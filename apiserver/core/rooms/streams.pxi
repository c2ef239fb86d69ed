# Room: streams
# Holds: streams. What orders work across them is each device's (types.pxi, Gpu).
# Lock: none; the dispatcher's, or of whoever looks while it stands still
# Home: streams green
# Changed by: -
# Read by: host_calls memory
# Offers: adopt_event adopt_stream cover_copies drop_event drop_stream event_ages fence find_event find_plain_event
#   find_stream forget_fences furnish_feed furnish_streams is_at_rest is_held_up join link_stream
#   note_copies note_outlived publish ready_stream reserve_order retire_event retire_stream stream_state synchronize
#   unlink_stream use_stream

cdef struct Streams:
    Stream *first
    cu.CUstream feed            # copies that streams wait for; it waits for nothing
