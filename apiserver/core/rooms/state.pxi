# Room: state
# Holds: how the session stands: served, held, ending; its latched failure.
# Lock: lock; flags are also read without it, where it does not matter to see them a little later
# Home: state hold
# Changed by: -
# Read by: connection contents memory receive records residence residency restore_ops scrub send service staging
#   stillness turn waiters
# Offers: begin_service begin_state drain_session end_service end_session hold_session latch leave_session malformed
#   prepare_wake release_session restore_latched stand_still take_latched wait_for_at_most

cdef struct State:
    pthread_t dispatcher
    bint serving                # there is a session
    bint ending
    int cause                   # why it ends (gpuferry.node.v1.Cause),
    char reason[REASON_SIZE]    # for people
    bint holding                # it is to stand still between two frames
    bint held                   # it does
    bint left                   # the session goes on elsewhere
    int latched
    uint16_t latched_op
