# Memory of a lease that several processes share (WIRE.md 14): each API server claims its part in a book, a file that the
# monitor gave to all of them. Who claims holds the file's lock; each writes its own seat alone.

cdef extern from "<sys/file.h>" nogil:
    enum:
        LOCK_EX
        LOCK_UN
    int flock(int fd, int operation)


cdef enum:
    BOOK_SIZE = (GF_SEATS * sizeof(gf_seat) + GF_EXTENTS * sizeof(gf_shared_extent) + GF_SEATS * GF_EXTENTS
                 + GF_SEATS * sizeof(gf_seat_devices))


cdef void open_extents(Session *s) noexcept nogil:
    """Of a whole book: one of an earlier version has its seats alone. book.lock is held."""
    cdef void *memory
    s.book.extents = NULL
    if lseek(s.book.file, 0, SEEK_END) < BOOK_SIZE:
        return
    memory = mmap(NULL, BOOK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s.book.file, 0)
    if memory != MAP_FAILED:
        s.book.extents = <gf_shared_extent *>(<uint8_t *>memory + GF_SEATS * sizeof(gf_seat))
        s.book.has = <uint8_t *>&s.book.extents[GF_EXTENTS]
        s.book.devices = <gf_seat_devices *>(s.book.has + GF_SEATS * GF_EXTENTS)


cdef void close_extents(Session *s) noexcept nogil:
    if s.book.extents != NULL:
        munmap(<uint8_t *>s.book.extents - GF_SEATS * sizeof(gf_seat), BOOK_SIZE)
    s.book.extents = NULL


cdef inline uint8_t *has_extent(Session *s, uint32_t seat, uint32_t extent) noexcept nogil:
    """What a process has of an extent."""
    return &s.book.has[seat * GF_EXTENTS + extent]


cdef bint is_anyones(Session *s, uint32_t extent) noexcept nogil:
    cdef uint32_t seat
    for seat in range(GF_SEATS):
        if has_extent(s, seat, extent)[0]:
            return True
    return False


cdef uint64_t orphaned(Session *s, const Gpu *gpu) noexcept nogil:
    """The device's memory that processes have mapped whose owner has given it back, or is gone: it still counts, once."""
    cdef uint64_t sum = 0
    cdef uint32_t i, owner
    if s.book.extents == NULL:
        return 0
    for i in range(GF_EXTENTS):
        if s.book.extents[i].size == 0:
            break                   # the first that is free was taken, always
        owner = maker_of(s, i)
        if s.book.extents[i].device != <uint32_t>gpu.place:
            continue
        if has_extent(s, owner, i)[0] != GF_HAS_MADE and is_anyones(s, i):
            sum += min(s.book.extents[i].size, s.window.quota)
    return sum


cdef uint32_t maker_of(Session *s, uint32_t extent) noexcept nogil:
    """The seat of whoever has made it, as the book says."""
    return min(s.book.extents[extent].owner, <uint32_t>GF_SEATS - 1)


cdef bint others_have(Session *s, uint32_t extent) noexcept nogil:
    cdef uint32_t seat
    for seat in range(GF_SEATS):
        if seat != s.book.seat and has_extent(s, seat, extent)[0]:
            return True
    return False


cdef bint is_first_of_orphan(Session *s, uint32_t extent) noexcept nogil:
    """Whether nobody has made it that still has it, and no process before this one has opened it."""
    cdef uint32_t seat = 0
    if has_extent(s, maker_of(s, extent), extent)[0] == GF_HAS_MADE:
        return False
    while seat < s.book.seat and not has_extent(s, seat, extent)[0]:
        seat += 1
    return seat == s.book.seat


cdef void take_orphan(Session *s, uint32_t extent) noexcept nogil:
    """The others find it with this process. It still counts as the lease's: this one has not made it."""
    flock(s.book.file, LOCK_EX)
    s.book.extents[extent].owner = s.book.seat
    flock(s.book.file, LOCK_UN)


cdef uint64_t claimed(Session *s, const Gpu *gpu) noexcept nogil:
    """Bytes of the device's memory that this process has claimed in the book; 0: there is none."""
    return gpu.credit if s.book.file >= 0 else 0


cdef bint is_covered(Session *s) noexcept nogil:
    """Whether all that is mapped was claimed."""
    cdef bint covered = True
    cdef int i
    for i in range(s.device.count):
        covered = covered and gpu_at_place(s, i).admitted <= gpu_at_place(s, i).credit
    return covered


cdef int enter_extent(Session *s, const Gpu *gpu, uint64_t size, uint32_t *extent) noexcept nogil:
    """The device's memory that this process has made gets a place in the book."""
    cdef int status = cu.CUDA_ERROR_OUT_OF_MEMORY
    cdef uint32_t i
    if s.book.extents == NULL:
        return cu.CUDA_ERROR_NOT_SUPPORTED
    flock(s.book.file, LOCK_EX)
    for i in range(GF_EXTENTS):
        if s.book.extents[i].size == 0 or not is_anyones(s, i):
            s.book.extents[i].owner = s.book.seat
            s.book.extents[i].device = <uint32_t>gpu.place
            s.book.extents[i].size = size
            has_extent(s, s.book.seat, i)[0] = GF_HAS_MADE
            extent[0] = i
            status = cu.CUDA_SUCCESS
            break
    flock(s.book.file, LOCK_UN)
    return status


cdef void begin_book(Session *s) noexcept nogil:
    """Nobody else has the lease: all of the quota is this session's."""
    cdef int i
    pthread_mutex_lock(&s.book.lock)
    close_extents(s)
    s.book.file = -1
    for i in range(s.device.count):
        gpu_at_place(s, i).admitted = 0
        gpu_at_place(s, i).growth = 0
        gpu_at_place(s, i).credit = s.window.quota
        gpu_at_place(s, i).kept = s.window.quota
    pthread_mutex_unlock(&s.book.lock)


cdef void write_seat(Session *s, const Gpu *gpu) noexcept nogil:
    if gpu.place == 0:
        pwrite(s.book.file, &gpu.credit, sizeof(gpu.credit), s.book.seat * sizeof(gf_seat))
    elif s.book.extents != NULL:
        s.book.devices[s.book.seat].claimed[gpu.place] = gpu.credit


cdef uint64_t claimed_by_others(Session *s, const Gpu *gpu) noexcept nogil:
    cdef gf_seat seats[GF_SEATS]
    cdef uint64_t sum = 0
    cdef ssize_t size = pread(s.book.file, seats, sizeof(seats), 0)
    cdef uint32_t i
    if size < <ssize_t>sizeof(seats) or (gpu.place > 0 and s.book.extents == NULL):
        return s.window.quota
    sum = orphaned(s, gpu)
    for i in range(GF_SEATS):
        if i != s.book.seat:
            sum += min(s.book.devices[i].claimed[gpu.place] if gpu.place > 0 else seats[i].claimed, s.window.quota)
    return sum


cdef bint claim(Session *s, Gpu *gpu, uint64_t wanted, uint64_t *left) noexcept nogil:
    """Raises the credit on the device to `wanted` bytes at least. `left`: what nobody has claimed then. book.lock is
    held."""
    cdef uint64_t others, room
    cdef bint fine
    if s.book.file < 0:
        left[0] = 0
        return wanted <= gpu.credit
    flock(s.book.file, LOCK_EX)
    others = claimed_by_others(s, gpu)
    room = s.window.quota - others if others < s.window.quota else 0
    fine = wanted <= max(room, gpu.credit)
    if fine and wanted > gpu.credit:
        gpu.credit = wanted
        write_seat(s, gpu)
    flock(s.book.file, LOCK_UN)
    left[0] = room - gpu.credit if room > gpu.credit else 0
    return fine


cdef bint admit(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """Whether so many bytes more of the device's memory may be taken; they count from here on."""
    cdef uint64_t left
    cdef bint fine
    pthread_mutex_lock(&s.book.lock)
    fine = size <= s.window.quota and gpu.admitted <= s.window.quota - size
    if fine and gpu.admitted + size > gpu.credit and not s.arrival.restoring:     # which claims all in the end
        fine = claim(s, gpu, gpu.admitted + size, &left)
    if fine:
        begin_growth(s, gpu, size)
    pthread_mutex_unlock(&s.book.lock)
    if not fine or may_be_there(s, gpu):
        return fine
    pthread_mutex_lock(&s.book.lock)
    drop_growth(s, gpu)
    give_up_credit(s, gpu)
    pthread_mutex_unlock(&s.book.lock)
    return False


cdef void give_up_credit(Session *s, Gpu *gpu) noexcept nogil:
    """Others may claim what the guest does not want to keep, and has given back. book.lock is held."""
    cdef uint64_t credit = max(gpu.kept, gpu.admitted)
    if s.book.file >= 0 and credit < gpu.credit:
        gpu.credit = credit
        write_seat(s, gpu)


cdef void hand_over(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """Memory that this process made counts as the lease's from here on. book.lock and the file's are held."""
    gpu.admitted -= size
    gpu.kept -= min(gpu.kept, size)     # the guest says so in its next message
    give_up_credit(s, gpu)


cdef void discharge(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """Gives back bytes of the device's memory that had been admitted."""
    pthread_mutex_lock(&s.book.lock)
    gpu.admitted -= size
    give_up_credit(s, gpu)
    pthread_mutex_unlock(&s.book.lock)


cdef int claim_memory(Session *s, Gpu *gpu, uint64_t wanted, uint64_t *credit, uint64_t *left) noexcept nogil:
    cdef bint fine
    pthread_mutex_lock(&s.book.lock)
    fine = claim(s, gpu, wanted, left)
    if fine:
        gpu.kept = max(gpu.kept, wanted)
    credit[0] = gpu.kept        # for the rest goes with what is being taken away
    pthread_mutex_unlock(&s.book.lock)
    return cu.CUDA_SUCCESS if fine else cu.CUDA_ERROR_OUT_OF_MEMORY


cdef void keep_memory(Session *s, Gpu *gpu, uint64_t credit) noexcept nogil:
    """The guest needs no more of the device's memory than this: others may claim the rest, once it is given back."""
    pthread_mutex_lock(&s.book.lock)
    gpu.kept = min(gpu.kept, credit)
    give_up_credit(s, gpu)
    pthread_mutex_unlock(&s.book.lock)


cdef void share_lease(Session *s, int file, uint32_t seat) noexcept nogil:
    """From here on others have the lease too: what this session does not use, they may claim."""
    cdef int i
    pthread_mutex_lock(&s.book.lock)
    close_extents(s)
    s.book.file = file
    s.book.seat = min(seat, <uint32_t>GF_SEATS - 1)
    open_extents(s)
    for i in range(s.device.count):
        gpu_at_place(s, i).credit = gpu_at_place(s, i).admitted
        gpu_at_place(s, i).kept = gpu_at_place(s, i).credit
        write_seat(s, gpu_at_place(s, i))
    pthread_mutex_unlock(&s.book.lock)


cdef void tell_shared(Session *s) noexcept nogil:
    """The guest learns that it must claim what it allocates."""
    cdef gf_header header
    memset(&header, 0, sizeof(header))
    header.size = sizeof(header)
    header.op = GF_OP_SHARED
    pthread_mutex_lock(&s.sending.lock)
    push(s, <uint8_t *>&header, sizeof(header), 0, NO_PIECE)
    pthread_mutex_unlock(&s.sending.lock)
