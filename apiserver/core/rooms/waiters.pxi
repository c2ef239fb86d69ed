# Room: waiters
# Holds: threads that wait for the device, and tasks for them.
# Lock: lock
# Home: waiters
# Changed by: service
# Read by: hold residency scrub
# Offers: await_context await_event await_loads await_stream give_event new_task stop_waiters submit submit_load take_event wait_for_tasks
#   wait_for_waiters

cdef struct Waiters:
    pthread_cond_t work
    int tasks
    Lane loads                  # images that are being loaded
    Lane *ready
    Lane *ready_tail
    int ready_count
    int idle
    vector[pthread_t] *threads
    bint stopping
