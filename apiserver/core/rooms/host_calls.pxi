# Room: host_calls
# Holds: functions of the program that streams wait for.
# Lock: lock
# Home: host_calls
# Changed by: -
# Read by: -
# Offers: ask_guest awaits_guest begin_host_calls give_up_host_calls host_params reserve_host_calls

cdef struct HostCall:           # on the stack of the driver's thread, which waits
    uint64_t ticket
    bint done
    HostCall *next

cdef struct HostCalls:
    pthread_cond_t returned
    HostCall *first
    uint64_t tickets            # that were given out
    bint over                   # nobody is there any more who would run one
