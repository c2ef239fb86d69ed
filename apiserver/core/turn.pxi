# A session works while it has a turn on its GPUs, and holds at a frame boundary without one (monitor/arbiter/DESIGN.md).
# Where nobody shares by turns this costs one branch per frame.

cdef enum:
    TURN_PAGE = 4096
    ALONE_GRACE = 2000000       # nanoseconds without a frame after which a turn is given back, if nobody waits for it
    WANTED_GRACE = 200000       # likewise, if somebody does
    HOST_PATIENCE = 20000000    # for functions of the program to return, once the turn is to end
    LOOK_FIRST = 20000          # nanoseconds between looks whether the device is at rest,
    LOOK_SOON = 100000          # at most, in the first
    LOOK_SOON_FOR = 10000000
    LOOK_LATER = 250000         # and later
    AHEAD_EVERY = 5000000000    # between two looks at what the guest sends, while it waits
    LOOK_MOST = 2000000         # where nobody waits for it

cdef TurnPage NO_PAGE
NO_PAGE.stop = 0
NO_PAGE.wanted = 0


cdef int prepare_turns(Session *s) noexcept nogil:
    """Once, when the process starts."""
    s.turn.fd = -1
    s.turn.news_fd = -1
    s.turn.page = &NO_PAGE
    s.turn.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    return 0 if s.turn.bell >= 0 else -1


cdef void begin_turn(Session *s) noexcept nogil:
    s.turn.held = False
    s.turn.asked = False
    s.turn.over = False
    s.turn.busy = False
    s.turn.stopping = 0
    s.turn.ended = 0


cdef TurnPage *map_page(int file) noexcept nogil:
    """Maps the page in which the arbiter says that turns are to end. NULL: it cannot be read."""
    cdef void *page = mmap(NULL, TURN_PAGE, PROT_READ, MAP_SHARED, file, 0)
    if page == MAP_FAILED:
        return NULL
    return <TurnPage *>page


cdef void unmap_page(TurnPage *page) noexcept nogil:
    if page != NULL and page != &NO_PAGE:
        munmap(<void *>page, TURN_PAGE)


cdef bint open_turns(Session *s, int fd, int page) noexcept nogil:
    """Another thread than the dispatcher: from its next frame on this arbiter is asked. Takes `fd`."""
    cdef TurnPage *mapped = map_page(page)
    if mapped == NULL:
        return False
    pthread_mutex_lock(&s.lock)
    if s.turn.news_fd >= 0:
        close(s.turn.news_fd)
        unmap_page(s.turn.news_page)
    s.turn.news_fd = fd
    s.turn.news_page = mapped
    s.turn.changed = True
    s.turn.gated = True
    pthread_mutex_unlock(&s.lock)
    ring_turn(s)
    return True


cdef void ring_turn(Session *s) noexcept nogil:
    """Whoever waits for a turn, or for a frame while it has one, looks at the flags of the session again."""
    if s.turn.gated:
        eventfd_write(s.turn.bell, 1)


cdef void give_up_turn(Session *s) noexcept nogil:
    """The guest is gone: what it asked for and was not begun is not waited for."""
    s.turn.over = True
    ring_turn(s)


# -- what is said to the arbiter, and heard from it. The dispatcher alone.

cdef void drop_arbiter(Session *s) noexcept nogil:
    """It is gone: the session is free until there is another."""
    close(s.turn.fd)
    unmap_page(s.turn.page)
    s.turn.fd = -1
    s.turn.page = &NO_PAGE
    s.turn.held = False
    s.turn.asked = False
    s.turn.busy = False


cdef void adopt_arbiter(Session *s) noexcept nogil:
    if s.turn.fd >= 0:
        drop_arbiter(s)
    pthread_mutex_lock(&s.lock)
    s.turn.changed = False
    s.turn.fd = s.turn.news_fd
    s.turn.page = s.turn.news_page
    s.turn.news_fd = -1
    pthread_mutex_unlock(&s.lock)


cdef bint has_arbiter(Session *s) noexcept nogil:
    if s.turn.changed:
        adopt_arbiter(s)
    if s.turn.fd >= 0:
        return True
    pthread_mutex_lock(&s.lock)
    s.turn.gated = s.turn.changed
    pthread_mutex_unlock(&s.lock)
    return False


cdef void tell_arbiter(Session *s, uint32_t word, uint64_t value) noexcept nogil:
    cdef TurnPacket packet
    packet.word = word
    packet.spare = 0
    packet.turn = s.turn.number
    packet.value = value
    if send(s.turn.fd, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(packet):
        drop_arbiter(s)


cdef void ask_for_turn(Session *s) noexcept nogil:
    s.turn.number += 1
    s.turn.asked = True
    tell_arbiter(s, TURN_ASK, 0)


cdef void give_back(Session *s) noexcept nogil:
    cdef uint64_t own = s.turn.own
    s.turn.own = 0
    if s.turn.held:
        s.turn.ended = now()
    s.turn.held = False
    s.turn.asked = False
    s.turn.busy = False
    tell_arbiter(s, TURN_BACK, own)


cdef void hear_arbiter(Session *s) noexcept nogil:
    cdef TurnPacket packet
    cdef ssize_t n
    while s.turn.fd >= 0:
        n = recv(s.turn.fd, &packet, sizeof(packet), MSG_DONTWAIT)
        if n < 0 and errno == EINTR:
            continue
        if n < 0 and errno == EAGAIN:
            return
        if n != sizeof(packet):
            drop_arbiter(s)
        elif packet.turn != s.turn.number:
            pass        # of a turn that was given back meanwhile
        elif packet.word == TURN_GO and s.turn.asked:
            s.turn.asked = False
            s.turn.held = True
            s.turn.busy = False
            s.turn.stopping = 0
        elif packet.word == TURN_TAKEN and s.turn.held:
            s.turn.held = False
            s.turn.ended = now()
            s.turn.busy = True


# -- the dispatcher, between two frames

cdef inline bint may_work(Session *s) noexcept nogil:
    """False: look at the session's flags first."""
    if not s.turn.gated:
        return True
    if s.turn.held and not s.turn.page.stop and not s.turn.changed:
        return True
    return take_turn(s)


cdef void wait_for_word(Session *s, int guest, uint64_t nanoseconds, bint *frame) noexcept nogil:
    """Until the arbiter says something, the bell rings, the time is over, or something came from the guest (unless
    -1)."""
    cdef pollfd those[3]
    cdef timespec patience
    cdef uint64_t rings
    patience.tv_sec = nanoseconds // 1000000000
    patience.tv_nsec = nanoseconds % 1000000000
    those[0].fd = s.turn.fd
    those[1].fd = s.turn.bell
    those[2].fd = guest
    for i in range(3):
        those[i].events = POLLIN
        those[i].revents = 0
    if ppoll(those, 3, &patience if nanoseconds > 0 else NULL, NULL) <= 0:
        return
    if those[1].revents:
        eventfd_read(s.turn.bell, &rings)
    if those[0].revents:
        hear_arbiter(s)
    frame[0] = those[2].revents != 0


cdef bint take_turn(Session *s) noexcept nogil:
    """Waits until the session may do its next frame; False: something else is to be done first."""
    cdef bint frame = False
    cdef uint64_t pause = LOOK_FIRST
    cdef uint64_t ahead = now() + AHEAD_EVERY
    while True:
        if not has_arbiter(s) or s.arrival.restoring:
            return True
        hear_arbiter(s)
        if s.state.ending or s.state.holding:
            return False
        if s.turn.held:
            if not s.turn.page.stop or not stop_working(s):
                return True
            continue
        if s.turn.over:
            pass_rest(s)
            return False
        if unread_bytes(s) < sizeof(gf_header) and not s.turn.busy:
            return True         # there is no frame yet
        if not s.turn.asked:
            ask_for_turn(s)
            continue
        if s.turn.busy and is_at_rest(s):
            s.turn.busy = False
            tell_arbiter(s, TURN_REST, 0)
            continue
        wait_for_word(s, -1, pause if s.turn.busy else AHEAD_EVERY, &frame)
        pause = min(2 * pause, <uint64_t>LOOK_MOST)
        if now() >= ahead:
            ahead = now() + AHEAD_EVERY
            read_ahead(s)


cdef bint stop_working(Session *s) noexcept nogil:
    """The turn is to end: waits until the device is at rest and gives it back, unless it is taken before. False: the
    program must be heard first, for the device waits for functions of it."""
    cdef bint frame = False
    cdef uint64_t pause = LOOK_FIRST
    if s.turn.stopping == 0:
        s.turn.stopping = now()
    while s.turn.held and not s.turn.changed:
        if is_at_rest(s):
            give_back(s)
        elif awaits_guest(s):
            if now() - s.turn.stopping < HOST_PATIENCE:
                return False
            give_back(s)
        elif s.state.ending or s.state.holding:
            break
        else:
            wait_for_word(s, -1, pause, &frame)
            pause = min(2 * pause, <uint64_t>(
                LOOK_SOON if now() - s.turn.stopping < LOOK_SOON_FOR else LOOK_LATER))
    return True


cdef void await_frame(Session *s) noexcept nogil:
    """Before the dispatcher waits for the guest: until something came, or the turn was given back because there is
    nothing left to do."""
    cdef uint64_t since = now()
    cdef uint64_t pause = LOOK_FIRST
    cdef uint64_t waited
    cdef uint64_t grace
    cdef bint frame = False
    while s.turn.held and not frame and not s.turn.changed and not s.state.ending and not s.state.holding:
        if s.connection.tls != NULL and gf_tls_has_input(s.connection.tls):
            return
        waited = now() - since
        grace = WANTED_GRACE if s.turn.page.wanted or s.turn.page.stop else ALONE_GRACE
        if waited < grace:
            wait_for_word(s, s.connection.fd if s.connection.attached else -1, grace - waited, &frame)
            continue
        if s.turn.page.stop and s.turn.stopping == 0:
            s.turn.stopping = now()
        if is_at_rest(s) or (s.turn.page.stop and awaits_guest(s) and now() - s.turn.stopping >= HOST_PATIENCE):
            give_back(s)
            return
        wait_for_word(s, s.connection.fd if s.connection.attached else -1, pause, &frame)
        pause = min(2 * pause, <uint64_t>(LOOK_LATER if grace == WANTED_GRACE else LOOK_MOST))


cdef int turn_state(Session *s, uint64_t *ended) noexcept nogil:
    """1: it waits for a turn; 2: it has one; 0: neither. `ended`: when its last one did, or 0. A hint."""
    ended[0] = s.turn.ended
    return 2 if s.turn.held else 1 if s.turn.asked else 0


cdef void leave_line(Session *s) noexcept nogil:
    """The session stands still: it wants no turn, and the one that it has goes back when the device is at rest
    (rest_turn)."""
    if s.turn.gated and s.turn.asked:
        give_back(s)


cdef void rest_turn(Session *s) noexcept nogil:
    """While the session stands still, again and again."""
    if s.turn.gated and s.turn.held and is_at_rest(s):
        give_back(s)


# -- the end of a session

cdef void end_turns_of(Session *s) noexcept nogil:
    """It asks no more. What it has it gives back when its work is done (finish_turn)."""
    if s.turn.gated and has_arbiter(s) and s.turn.asked:
        give_back(s)


cdef void finish_turn(Session *s, uint64_t own) noexcept nogil:
    """Nothing of it runs any more. `own`: nanoseconds that clearing up after it took."""
    s.turn.own += own
    if s.turn.gated and has_arbiter(s):
        give_back(s)
