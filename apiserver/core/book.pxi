# Memory of a lease that several processes share (WIRE.md 14): each API server claims its part in a book, a file that the
# monitor gave to all of them. Who claims holds the file's lock; each writes its own seat alone.

cdef extern from "<sys/file.h>" nogil:
    enum:
        LOCK_EX
        LOCK_UN
    int flock(int fd, int operation)


cdef enum:
    BOOK_SIZE = GF_SEATS * sizeof(gf_seat) + GF_EXTENTS * sizeof(gf_shared_extent) + GF_SEATS * GF_EXTENTS


cdef void open_extents(Session *s) noexcept nogil:
    """Of a book that has them: one of an earlier version has not. book.lock is held."""
    cdef void *memory
    s.book.extents = NULL
    if lseek(s.book.file, 0, SEEK_END) < BOOK_SIZE:
        return
    memory = mmap(NULL, BOOK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s.book.file, 0)
    if memory != MAP_FAILED:
        s.book.extents = <gf_shared_extent *>(<uint8_t *>memory + GF_SEATS * sizeof(gf_seat))
        s.book.has = <uint8_t *>&s.book.extents[GF_EXTENTS]


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


cdef uint64_t orphaned(Session *s) noexcept nogil:
    """Memory that processes have mapped whose owner has given it back, or is gone: it still counts, once."""
    cdef uint64_t sum = 0
    cdef uint32_t i, owner
    if s.book.extents == NULL:
        return 0
    for i in range(GF_EXTENTS):
        if s.book.extents[i].size == 0:
            break                   # the first that is free was taken, always
        owner = maker_of(s, i)
        if has_extent(s, owner, i)[0] != GF_HAS_MADE and is_anyones(s, i):
            sum += min(s.book.extents[i].size, s.window.quota)
    return sum


cdef uint32_t maker_of(Session *s, uint32_t extent) noexcept nogil:
    """The seat of whoever has made it, as the book says."""
    return <uint32_t>min(s.book.extents[extent].owner, <uint64_t>GF_SEATS - 1)


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


cdef uint64_t claimed(Session *s) noexcept nogil:
    """Bytes that this process has claimed in the book; 0: there is none."""
    return s.book.credit if s.book.file >= 0 else 0


cdef bint is_covered(Session *s) noexcept nogil:
    """Whether all that is mapped was claimed."""
    return s.book.admitted <= s.book.credit


cdef int enter_extent(Session *s, uint64_t size, uint32_t *extent) noexcept nogil:
    """This process's memory gets a place in the book."""
    cdef int status = cu.CUDA_ERROR_OUT_OF_MEMORY
    cdef uint32_t i
    if s.book.extents == NULL:
        return cu.CUDA_ERROR_NOT_SUPPORTED
    flock(s.book.file, LOCK_EX)
    for i in range(GF_EXTENTS):
        if s.book.extents[i].size == 0 or not is_anyones(s, i):
            s.book.extents[i].owner = s.book.seat
            s.book.extents[i].size = size
            has_extent(s, s.book.seat, i)[0] = GF_HAS_MADE
            extent[0] = i
            status = cu.CUDA_SUCCESS
            break
    flock(s.book.file, LOCK_UN)
    return status


cdef void begin_book(Session *s) noexcept nogil:
    """Nobody else has the lease: all of the quota is this session's."""
    pthread_mutex_lock(&s.book.lock)
    close_extents(s)
    s.book.file = -1
    s.book.admitted = 0
    s.book.credit = s.window.quota
    pthread_mutex_unlock(&s.book.lock)


cdef void write_seat(Session *s) noexcept nogil:
    cdef uint64_t credit = s.book.credit
    pwrite(s.book.file, &credit, sizeof(credit), s.book.seat * sizeof(gf_seat))


cdef uint64_t claimed_by_others(Session *s) noexcept nogil:
    cdef gf_seat seats[GF_SEATS]
    cdef uint64_t sum = 0
    cdef ssize_t size = pread(s.book.file, seats, sizeof(seats), 0)
    cdef uint32_t i
    if size < <ssize_t>sizeof(seats):
        return s.window.quota
    sum = orphaned(s)
    for i in range(GF_SEATS):
        if i != s.book.seat:
            sum += min(seats[i].claimed, s.window.quota)
    return sum


cdef bint claim(Session *s, uint64_t wanted, uint64_t *left) noexcept nogil:
    """Raises the credit to `wanted` bytes at least. `left`: what nobody has claimed then. book.lock is held."""
    cdef uint64_t others, room
    cdef bint fine
    if s.book.file < 0:
        left[0] = 0
        return wanted <= s.book.credit
    flock(s.book.file, LOCK_EX)
    others = claimed_by_others(s)
    room = s.window.quota - others if others < s.window.quota else 0
    fine = wanted <= max(room, s.book.credit)
    if fine and wanted > s.book.credit:
        s.book.credit = wanted
        write_seat(s)
    flock(s.book.file, LOCK_UN)
    left[0] = room - s.book.credit if room > s.book.credit else 0
    return fine


cdef bint admit(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """Whether so many bytes more of the device's memory may be taken; they count from here on."""
    cdef uint64_t left
    cdef bint fine
    pthread_mutex_lock(&s.book.lock)
    if s.device.count > 1:
        fine = size <= s.window.quota and gpu.admitted <= s.window.quota - size
        gpu.admitted += size if fine else 0
        pthread_mutex_unlock(&s.book.lock)
        return fine
    fine = size <= s.window.quota and s.book.admitted <= s.window.quota - size
    if fine and s.book.admitted + size > s.book.credit and not s.arrival.restoring:     # which claims all in the end
        fine = claim(s, s.book.admitted + size, &left)
    if fine:
        s.book.admitted += size
    pthread_mutex_unlock(&s.book.lock)
    return fine


cdef void discharge(Session *s, Gpu *gpu, uint64_t size) noexcept nogil:
    """Gives back bytes of the device's memory that had been admitted."""
    pthread_mutex_lock(&s.book.lock)
    if s.device.count > 1:
        gpu.admitted -= size
    else:
        s.book.admitted -= size
    pthread_mutex_unlock(&s.book.lock)


cdef int claim_memory(Session *s, uint64_t wanted, uint64_t *credit, uint64_t *left) noexcept nogil:
    cdef bint fine
    pthread_mutex_lock(&s.book.lock)
    fine = claim(s, wanted, left)
    credit[0] = s.book.credit
    pthread_mutex_unlock(&s.book.lock)
    return cu.CUDA_SUCCESS if fine else cu.CUDA_ERROR_OUT_OF_MEMORY


cdef void keep_memory(Session *s, uint64_t credit) noexcept nogil:
    """The guest needs no more than this: others may claim the rest."""
    pthread_mutex_lock(&s.book.lock)
    credit = max(credit, s.book.admitted)
    if s.book.file >= 0 and credit < s.book.credit:
        s.book.credit = credit
        write_seat(s)
    pthread_mutex_unlock(&s.book.lock)


cdef void share_lease(Session *s, int file, uint32_t seat) noexcept nogil:
    """From here on others have the lease too: what this session does not use, they may claim."""
    pthread_mutex_lock(&s.book.lock)
    close_extents(s)
    s.book.file = file
    s.book.seat = min(seat, <uint32_t>GF_SEATS - 1)
    open_extents(s)
    s.book.credit = s.book.admitted
    write_seat(s)
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
