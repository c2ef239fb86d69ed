# Room: turn
# Holds: whether the session may work now, as the arbiter of its GPUs says.
# Lock: lock; of it `news_fd` and `news_page`. `gated`, `changed` and `over` are hints, the rest is the dispatcher's
# Home: turn
# Changed by: contents
# Read by: connection hold receive
# Offers: await_frame begin_turn end_turns_of finish_turn give_up_turn leave_line may_work open_turns prepare_turns
#   rest_turn ring_turn turn_state

cdef enum:
    TURN_ASK = 1                # monitor/arbiter/words.py says what each means
    TURN_BACK
    TURN_REST
    TURN_GO
    TURN_STOP
    TURN_TAKEN
    TURN_WANTED

cdef packed struct TurnPacket:
    uint32_t word
    uint32_t spare
    uint64_t turn
    uint64_t value

cdef struct TurnPage:           # the arbiter's
    uint32_t stop
    uint32_t wanted

cdef struct Turn:
    bint gated                  # an arbiter is there, or there is news of one
    bint held                   # the session has a turn
    bint asked                  # it waits for one
    bint over                   # its guest is gone: it waits no more
    bint busy                   # its turn was taken, and what it began goes on
    bint changed                # there is another arbiter:
    int news_fd
    TurnPage *news_page
    int fd                      # the socket to the arbiter; -1: there is none
    TurnPage *page
    int bell                    # an eventfd: look at the flags again
    uint64_t number             # of the last request
    uint64_t ended              # when it gave its last turn back; 0: it had none
    uint64_t stopping           # since when the turn is to end
    uint64_t own                # nanoseconds of work of our own that the arbiter was not told
