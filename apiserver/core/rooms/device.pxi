# Room: device
# Holds: the device and its contexts, of which the primary one is always there.
# Lock: none; the dispatcher's, but any thread may say that the context is broken
# Home: device context_ops
# Changed by: -
# Read by: _core aliases arrays aside codec dispatch handles host_calls images links journal memory records restore_ops scrub
#   session_ops sharing streams waiters
# Offers: adopt_context begin_device describe_device drop_context drop_own_events empty_context enter forget_current
#   is_simulated note_configured note_status reserve reset_primary retire_context start_device

cdef struct Device:
    cu.CUdevice cu
    Context *primary            # ours: retained for good
    Context *current            # on the dispatcher's thread
    Context *others             # beside the primary one
    int contexts                # of them
    bint shareable              # physical memory can be given to another process
    bint reconfigured           # limits or the like were changed
    bint broken                 # the context is lost: only a reset mends it
