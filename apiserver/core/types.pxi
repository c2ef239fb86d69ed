# The engine's data. A comment names the lock that guards a field; all others belong to the dispatcher (DESIGN.md).

# What a handler returns besides a CUresult.
cdef enum:
    DEFERRED = -1   # the reply is sent later, by another thread
    ENDED = -2      # the session is over: s.reason says why

cdef enum:
    CONTEXT = 1
    MODULE = 2
    LIBRARY = 3
    KERNEL = 4
    FUNCTION = 5
    STREAM = 6
    EVENT = 7
    KINDS = 9

cdef enum:
    RECEIVE_BUFFER = 256 << 10
    SLOT_SIZE = 4 << 20
    SLOT_COUNT = 16
    SLOT_STREAMS = 64
    PAGE_BITS = 21
    PAGE = 2 << 20
    QUEUE_LIMIT = 1 << 20       # bytes of replies that may wait, staging aside, for a guest that does not read
    WAITER_LIMIT = 128
    REASON_SIZE = 256
    REPLY_SIZE = 64
    HEAD_SIZE = 96
    OPERATIONS = 1 << 16
    ACKNOWLEDGE_SIZE = 24
    PART_SIZE = (256 << 10) - 64
    SPARE_PARTS = 256           # kept by a session for what it will send: as much as staging holds
    LAUNCH_ATTRIBUTES = 16
    MISSING = 0xffff            # request size of an operation that does not exist
    TIMED_EVERY = 61            # a prime: no loop of a program keeps step with it
    COPY_STREAMS = 4
    CURRENT_CONTEXT = -1        # in place of where a handle lies in a request
    REST = 0                    # in place of a size: to the end of the frame

cdef enum Lasting:              # what a frame leaves behind; of what is written by hand, nothing that is known here
    LASTING_NONE
    LASTING_CREATE
    LASTING_DESTROY
    LASTING_SET

cdef enum KeptContext:          # which context is current when a frame is replayed
    KEPT_WITHOUT
    KEPT_IN_ANY
    KEPT_IN_ITS_OWN

cdef struct Span:
    uint16_t offset
    uint16_t size

cdef struct Replay:
    int handle
    KeptContext context
    int spans
    Span by[SPANS]

cdef struct Kept:               # s.lock; the frame follows
    Kept *next
    uint64_t sequence
    uint64_t answer             # digest of what was answered; 0: nothing was
    uint32_t size

cdef struct Object:             # first member of everything that a handle names
    int kind
    uint64_t handle
    Context *context
    Object *next
    Object *previous
    Kept *kept                  # frames that made and changed it

cdef struct Entry:
    Object *object              # NULL: free
    uint16_t generation

cdef struct Context:
    Object base
    cu.CUcontext cu
    Stream *legacy
    Stream *per_thread          # made when first used
    int nonblocking             # streams of it that do not wait for the legacy stream
    vector[cu.CUevent] *events  # spare; s.lock
    cu.CUevent anchor           # from when the ages of restored events count; NULL: there are none
    bint uncovered              # copies on the legacy stream that no fence followed: all streams wait for that one
    bint noted                  # `copied` is behind them
    cu.CUevent copied

cdef struct Stream:
    Object base
    cu.CUstream cu
    bint nonblocking
    bint dirty                  # used since the last fence
    bint active                 # used since it was last seen idle
    uint64_t epoch              # fences up to here are waited for
    Lane *lane
    Stream *next
    Stream *previous

cdef struct Event:
    Object base
    cu.CUevent cu
    int waiters                 # s.lock
    bint destroyed              # s.lock
    bint recorded
    uint32_t flags              # of its record
    bint aged                   # its record is from another server,
    int64_t age                 # so much older, in nanoseconds, than what stands for it here

cdef struct Kernel:
    cu.CUfunction function      # of a module, or
    cu.CUkernel kernel          # of a library
    uint32_t param_bytes

cdef struct Image:              # a module or a library
    Object base
    cu.CUmodule module
    cu.CUlibrary library
    Image *parent               # the library that a module came from
    uint8_t hash[GF_HASH_SIZE]  # of its bytes
    vector[Kernel] *kernels

cdef struct Function:
    Object base
    Image *owner
    Kernel kernel
    cu.CUfunction cu            # in the context `of`
    Context *of

cdef struct Global:             # s.lock
    Image *owner
    uint64_t address
    uint64_t size

cdef struct Bytes:              # an image as it came; s.lock
    uint8_t hash[GF_HASH_SIZE]
    uint64_t size
    uint64_t received
    uint8_t *data
    int users
    bint verified
    uint64_t last_used

cdef struct Slot:
    uint8_t *base
    size_t used
    bint open                   # pieces are still cut from it
    int references              # replies that were not sent yet; s.lock
    int streams_count
    Stream *streams[SLOT_STREAMS]
    int events_count            # once closed
    cu.CUevent events[SLOT_STREAMS]
    Context *contexts[SLOT_STREAMS]

cdef struct Piece:
    uint8_t *data
    int slot                    # -1: on the heap

cdef struct Frame:
    const uint8_t *body
    size_t size                 # request struct and payload
    uint32_t request
    uint16_t op
    Context *context            # current on the guest's thread; NULL: none
    uint64_t sequence
    uint64_t started            # 0: not timed
    uint8_t reply[REPLY_SIZE]
    size_t reply_size

cdef enum TaskKind:
    TASK_COPY_OUT
    TASK_STREAM
    TASK_EVENT
    TASK_CONTEXT
    TASK_LOAD
    TASK_UNMAP

cdef struct Lane:               # tasks in order; s.lock
    Task *head
    Task *tail
    bint busy                   # a waiter serves it, or soon will
    bint orphan                 # its stream is gone: whoever empties it frees it
    Lane *next

cdef struct Task:
    TaskKind kind
    Task *next
    Lane own                    # of a task that need not follow another
    Frame frame
    Context *context
    cu.CUevent event            # wait for this one, then give it back to its context
    Event *subject              # TASK_EVENT
    Piece piece                 # TASK_COPY_OUT
    size_t size
    bint answered               # by a flush; s.send_lock
    Task *later                 # s.send_lock
    Task *earlier
    Bytes *image                # TASK_LOAD
    uint64_t handle
    uint64_t address            # TASK_UNMAP
    uint64_t length
    Task *next_unmap            # s.lock

cdef struct Outgoing:           # what the socket did not take at once; s.send_lock
    uint8_t head[HEAD_SIZE]
    size_t head_size
    size_t payload_size
    size_t sent
    Piece piece
    bint torn                   # the rest of a frame
    Outgoing *next

cdef struct Part:               # of what was sent and may have to be sent again; s.send_lock
    Part *next
    uint64_t start              # in the stream
    size_t used
    uint8_t data[PART_SIZE]

cdef enum:
    SHAPES = 2

cdef struct Hasher:
    cu.CUmodule module
    cu.CUfunction shapes[SHAPES]
    int best                    # -1: not tried yet
    cu.CUdeviceptr pages
    cu.CUdeviceptr sums

cdef struct Calls:              # of one operation
    uint64_t succeeded
    uint64_t failed
    uint64_t timed
    uint64_t nanoseconds        # of those that were timed, from dispatch to answer

cdef struct Stats:
    uint64_t calls_async
    uint64_t calls_sync
    uint64_t bytes_in
    uint64_t bytes_out          # s.send_lock
    uint64_t launches
    uint64_t busy_nanoseconds
    Calls unanswered[GF_OP_COUNT]
    Calls answered[GF_OP_COUNT] # s.send_lock
    uint64_t unsupported[GF_FUNCTION_LAST - GF_FUNCTION_FIRST + 1]  # as the guest counts them

cdef struct Carried:            # what a session that is being restored will have
    Stats stats
    bint counted                # `stats` came
    int latched
    uint16_t latched_op
    bint resumable
    gf_req_sessionRestoreResumable log
    vector[uint8_t] *input
    vector[uint8_t] *output
    uint32_t head               # of output: the rest of a frame
    bint complete               # and verified

ctypedef Bytes *PBytes
ctypedef Kept *PKept

cdef struct Session:
    # of the process
    cu.CUdevice device
    uint64_t window
    uint64_t window_size
    size_t max_pitch
    unsigned int turn           # of the calls that are not answered one in so many is timed
    Context *primary
    Stream *order               # carries fences and the clearing of new memory
    Stream *reclaim             # what unmaps must wait for
    Entry *tables[KINDS]
    uint8_t *staging
    Slot slots[SLOT_COUNT]
    uint32_t *mapping_pages     # per page of the window: length of the mapping that starts there
    uint64_t *mapping_handles
    uint64_t *mapping_serials   # which of the mappings that began there
    uint64_t serial
    uint64_t *mapped            # bitmap of pages
    pthread_mutex_t map_lock    # what is marked there stays: another thread wants it aside
    bint shareable              # physical memory can be given to another process
    uint64_t aside              # a range like the window (core/aside.pxi); 0: not reserved yet
    uint32_t *aside_pages
    uint64_t *aside_handles
    uint64_t *aside_serials
    uint64_t *aside_mapped
    bint aside_unwanted         # it is only kept because to unmap it might have to wait for the device
    uint64_t *touched           # bitmap of pages that launches named, while the tail is written

    # Held while another thread looks at the session to move it; taken before all other locks.
    pthread_mutex_t move_lock
    Hasher hasher               # the same thread's, or of a session that is restored the dispatcher's; so is the next
    cu.CUstream side_stream     # waits for nobody's
    vector[uint64_t] *pinned    # addresses of buffers of its

    # of one session
    uint64_t quota
    int fd
    Stats stats
    uint8_t *buffer
    size_t begin
    size_t end
    uint64_t sequence
    bint resumable              # it outlives its connection
    const uint16_t *sizes       # of the operations that are served
    bint restoring              # it comes from another server, and is not here yet
    bint parting                # from the link of a source, whose end is nothing to us: the guest's socket is here
    bint taken_over
    Carried carried
    vector[int] *descriptors    # that came beside frames
    Stream *copy_streams[COPY_STREAMS]
    pthread_t dispatcher
    bint tailing                # lasting frames are also put on the tail
    uint64_t received_told      # as many of `received` as the guest knows of
    Context *current
    bint closed                 # sessionClose was read
    bint reconfigured           # limits or the like were changed
    int open_slot               # -1: none
    cu.CUevent fence
    uint64_t epoch
    bint unpublished            # `order` carries work of streams that are gone, not yet behind a fence
    Stream *streams
    int contexts                # beside the primary one
    uint64_t mapped_bytes

    pthread_mutex_t lock
    pthread_cond_t changed      # staging, tasks or unmaps
    pthread_cond_t work
    bint ending
    bint serving                # there is a session
    bint holding                # it is to stand still between two frames
    bint held                   # it does
    bint left                   # the session goes on elsewhere
    Kept *tail
    Kept *tail_end
    size_t tail_bytes
    bint tail_lost
    bint unkept                 # there was no memory for a frame
    bint attached               # the connection lives, as far as we know
    bint by_link                # the guest speaks by way of where it was before,
    bint following              # and has taken leave there
    gf_header relayed_head
    size_t relayed_tail         # bytes at the end of what it sent that begin a header, or are MOVED: no part of the stream, maybe
    size_t relayed_missing      # bytes of the frame whose header was the last to be complete
    size_t stale                # bytes at the end of the buffer that the guest says again, or does not
    bint receiving              # the dispatcher is in recv
    uint64_t received           # bytes after WELCOME
    bint broken                 # the context is lost: only a reset mends it
    char reason[REASON_SIZE]
    int latched
    uint16_t latched_op
    Object *objects
    vector[Global] *globals
    vector[PBytes] *images
    uint64_t image_bytes
    uint64_t image_clock
    Task *unmaps
    int tasks
    Lane memory_lane
    Lane *ready
    Lane *ready_tail
    int ready_count
    int idle_waiters
    vector[pthread_t] *waiters
    bint stopping

    pthread_mutex_t send_lock
    pthread_cond_t sendable
    pthread_cond_t drained
    pthread_t sender
    bint sender_started
    bint sender_stopping
    bint unwritable
    bint frozen                 # nothing more is written: it is taken along
    int printed                 # our standard output
    int bell                    # an eventfd: the shell should look at the session
    bint resting                # the next launch rings it
    long forwarded              # of it to the guest, in bytes
    Outgoing *queue
    Outgoing *queue_tail
    size_t queued
    Part *log                   # of a resumable session, in place of the queue
    Part *log_tail
    Part *spare                 # parts that were acknowledged
    int spares
    Part *log_next              # the one that holds the next byte to be written
    uint64_t log_begin          # the guest has everything before
    uint64_t log_written
    uint64_t log_boundary       # a frame begins here, at log_begin or later
    uint64_t log_end
    Task *outstanding           # copies out, in order of dispatch
    Task *outstanding_tail

ctypedef int (*Handler)(Session *, Frame *) noexcept nogil
ctypedef Session *PSession
