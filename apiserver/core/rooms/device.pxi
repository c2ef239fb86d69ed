# Room: device
# Holds: the devices and their contexts, of which the primary ones are always there.
# Lock: none; the dispatcher's, but any thread may say that the context is broken
# Home: device context_ops
# Changed by: handles
# Read by: aliases arrays aside book codec contents handles hash host_calls images journal links memory records
#   residence residency restore_ops scrub service session_ops shared_moves sharing streams variables waiters
# Offers: adopt_context begin_device choose_devices describe_device describe_links device_of drop_context
#   drop_own_events empty_context enter find_context forget_current gpu_at_place gpu_in gpu_of has_device is_simulated
#   loads_machine_code next_context note_configured note_status number_of reach_pools reserve reset_primary retire_context start_devices

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
