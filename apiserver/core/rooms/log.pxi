# Room: log
# Holds: what was sent and may have to be sent again.
# Lock: sending.lock
# Home: log
# Changed by: -
# Read by: connection send stillness
# Offers: acknowledged begin_log drop_log find_boundary flush_log may_go_on_at push_log read_log restore_log
#   rewind_log send_log

cdef struct Part:               # of what was sent and may have to be sent again
    Part *next
    uint64_t start              # in the stream
    size_t used
    uint8_t data[PART_SIZE]

cdef struct Log:
    Part *first
    Part *last
    Part *spare                 # parts that were acknowledged
    int spares
    Part *next                  # the one that holds the next byte to be written
    uint64_t begin              # the guest has everything before
    uint64_t written
    uint64_t boundary           # a frame begins here, at `begin` or later
    uint64_t end
