# Room: device
# Holds: the devices and their contexts, of which the primary ones are always there.
# Lock: none; the dispatcher's, but any thread may say that the context is broken
# Home: device context_ops
# Changed by: -
# Read by: _core aliases arrays aside book codec handles host_calls images journal links memory records restore_ops
#   scrub session_ops shared_moves sharing state streams waiters
# Offers: adopt_context begin_device describe_device drop_context drop_own_events empty_context enter forget_current
#   choose_devices describe_links device_of find_context gpu_at_place gpu_in gpu_of has_device is_simulated
#   note_configured note_status reach_pools reserve reset_primary retire_context start_devices

cdef struct Device:
    Gpu gpus[GF_DEVICES_MAX]    # of this process; the first is where what belongs to none is done
    int count
    Gpu *shown[GF_DEVICES_MAX]  # those that the guest's program sees, by its numbers
    int visible
    bint chosen                 # the guest has said which
    Context *primary            # of the first
    Context *current            # on the dispatcher's thread
    Context *others             # beside the primary one
    int contexts                # of them
    bint reconfigured           # limits or the like were changed
    bint broken                 # the context is lost: only a reset mends it
