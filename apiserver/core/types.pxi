# The engine's data. A comment names the lock that guards a field; all others belong to the dispatcher (DESIGN.md).

# What a handler returns besides a CUresult.
cdef enum:
    DEFERRED = -1   # the reply is sent later, by another thread
    ENDED = -2      # the session is over: s.state.reason says why

cdef enum:
    INPUT_MOST = 32 << 20       # bytes that a session that waits long keeps unread
    RECEIVE_BUFFER = 256 << 10
    SLOT_SIZE = 4 << 20
    SLOT_COUNT = 16
    SLOT_STREAMS = 64
    PAGE_BITS = 21
    PAGE = 2 << 20
    QUEUE_LIMIT = 1 << 20       # bytes of replies that may wait, staging aside, for a guest that does not read
    WAITER_LIMIT = 128
    TASK_LIMIT = 1 << 14        # that are under way: no program has more threads that wait
    REASON_SIZE = 256
    REPLY_SIZE = 64
    HEAD_SIZE = 96
    OPERATIONS = 1 << 16
    ACKNOWLEDGE_SIZE = 24
    PART_SIZE = (256 << 10) - 64
    SPARE_PARTS = 256           # kept by a session for what it will send: as much as staging holds
    LAUNCH_ATTRIBUTES = 16
    LINK_OPTIONS = 64 + 4       # as many as types.yaml allows, and those of the logs
    LINK_NAME = 4096
    MISSING = 0xffff            # request size of an operation that does not exist
    TIMED_EVERY = 61            # a prime: no loop of a program keeps step with it
    COPY_STREAMS = 4
    CELLS = 2048                # events that processes may share, of each session
    CELL_WORDS = 64             # of each: the number of its records, and slots for those that are complete
    RECORD_SLOTS = CELL_WORDS - 1
    ARENA_SIZE = CELLS * CELL_WORDS * 8
    CURRENT_CONTEXT = -1        # in place of where a handle lies in a request
    REST = 0                    # in place of a size: to the end of the frame

cdef enum Lasting:              # what a frame leaves behind; of what is written by hand, nothing that is known here
    LASTING_NONE
    LASTING_CREATE
    LASTING_DESTROY
    LASTING_SET
    LASTING_ADD

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

cdef struct Object:             # first member of everything that a handle names
    int kind
    uint64_t handle
    Context *context
    Object *owner               # it ends with this
    Object *owned               # the youngest of what ends with it; s.lock
    Object *elder               # the next of the same owner; s.lock
    Object *younger
    Kept *kept                  # frames that made and changed it; s.lock

cdef struct Gpu:                # a device of this process, and what orders work there
    cu.CUdevice cu
    int place                   # among those of the process
    bint shareable              # physical memory can be given to another process
    Context *primary            # ours: retained for good
    Stream *order               # carries fences and the clearing of new memory
    Stream *reclaim             # what unmaps must wait for
    cu.CUevent outlived         # in `reclaim`, behind the work of streams that are gone
    cu.CUevent fence
    uint64_t epoch
    bint unpublished            # `order` carries work of streams that are gone, not yet behind a fence
    uint32_t reached_by         # a bit for each device whose kernels may reach its memory
    uint32_t pools_reached_by   # likewise, because its pools say so
    uint64_t admitted           # bytes of its quota that are mapped, about to be, or not given back yet; book.lock
    uint64_t growth             # of them those of a call that waits, or is about to, and has none of them; lock
    uint64_t credit             # bytes that may be; book.lock
    uint64_t kept               # so many the guest wants to keep of them; book.lock

cdef struct Context:
    Object base
    Gpu *gpu
    vector[uint64_t] *peers     # handles of the contexts whose memory its kernels may reach; some may be gone
    cu.CUcontext cu
    Stream *legacy
    Stream *per_thread          # made when first used
    int nonblocking             # streams of it that do not wait for the legacy stream
    Context *next               # beside the primary one
    Context *previous
    Function *used              # of libraries: those whose form here is known
    Kept *changes               # frames kept with what is no context's, that end with this one; s.lock
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
    Arena *arena                # its records, if processes may share it; NULL: they are the driver's affair
    uint32_t cell
    uint64_t maker              # the session that has made it, if that is another,
    uint8_t token[GF_TOKEN_SIZE]    # and by which name it was opened
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
    Image *modules              # that came from it
    Image *next                 # of them
    Image *previous
    Bytes *source               # what it was loaded from; s.lock
    cpp_set[uint64_t] *variables    # addresses of those that were handed out; s.lock
    vector[Kernel] *kernels

cdef struct Function:
    Object base
    Kernel kernel
    cu.CUfunction cu            # in the context `of`
    Context *of
    Function *next              # of the same
    Function *previous

cdef struct Piece:
    uint8_t *data
    int slot                    # -1: on the heap

cdef struct Frame:
    const uint8_t *body
    size_t size                 # request struct and payload
    uint32_t request
    uint16_t op
    Context *context            # current on the guest's thread; NULL: none
    bint lacking                # it names an array or memory that is not there, in a session that is being restored
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
    TASK_LINK
    TASK_UNMAP
    TASK_RETURNED
    TASK_HOST_CALL

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
    bint answered               # by a flush; s.sending.lock
    Task *later                 # s.sending.lock
    Task *earlier
    Bytes *image                # TASK_LOAD, TASK_LINK
    uint64_t handle
    Link *link                  # TASK_LINK
    LinkInput *input            # that is added; NULL: the link is completed
    uint8_t *body               # of the request
    uint64_t address            # TASK_UNMAP
    uint64_t length
    Task *next_unmap            # s.lock
    int status                  # TASK_HOST_CALL

