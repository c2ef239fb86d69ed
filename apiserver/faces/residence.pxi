# For a thread that sends the session's memory away and brings it back (residing.py, core/residency.pxi).

cdef class Residence(Contents):
    """Where the session's memory is, how much of it may be on the device, and its way between."""

    def limit_room(self, uint64_t allowance) -> int:
        """As many bytes of the session's memory may be on the device from now on; as many as there are at least. Returns
        how many."""
        return limit_room(self.s, allowance)

    def refuse_room(self) -> None:
        """There is no room for what the session waits for: it is out of memory."""
        refuse_room(self.s)

    def wish(self) -> tuple[bool, int] | None:
        """What the session waits for, once: whether it is away, and how many bytes it needs on the device. None: nothing."""
        cdef bint absent = False
        cdef uint64_t wanted = 0
        return (absent, wanted) if take_wish(self.s, &absent, &wanted) else None

    @property
    def awaits_room(self) -> bool:
        """Whether a call waits for more room than the session has, and `wish` has said so."""
        return awaits_room(self.s)

    def wish_again(self) -> None:
        """Whoever was told what the session waits for is gone."""
        ask_room(self.s)

    @property
    def absent(self) -> bool:
        """Whether the session's memory is not on the device."""
        return self.s.residency.absent

    @property
    def resident(self) -> int:
        """Bytes of the session that are on the device, or may be any moment."""
        absent = self.s.window.used if self.s.residency.absent else 0
        return gpu_at_place(self.s, 0).admitted - absent

    @property
    def stays(self) -> str:
        """Why the session's memory cannot leave the device; empty: it can."""
        cdef const char *why = stays_why(self.s)
        return why.decode() if why != NULL else ""

    @property
    def idle_seconds(self) -> float:
        """For how long the session has done nothing; 0: it does something."""
        cdef uint64_t since = 0
        return (now() - since) / 1e9 if is_quiet(self.s, &since) else 0.0

    @property
    def turn(self) -> tuple[int, float]:
        """1: it waits for a turn; 2: it has one; 0: neither. And for how long it has had none, or -1: it never had."""
        cdef uint64_t ended = 0
        state = turn_state(self.s, &ended)
        return state, (now() - ended) / 1e9 if ended else -1.0

    @property
    def changes(self) -> int:
        """Grows with everything that may change what the session has mapped, or what that holds."""
        return self.s.residency.changes

    @property
    def work(self) -> int:
        """Grows with everything that may have written anywhere."""
        return self.s.residency.launches

    def hold_to_leave(self, double seconds) -> bool:
        """Stops the dispatcher between two frames, or where it waits for room; False: it did not come to that in time."""
        self.s.residency.leaving = True
        held = self.hold(seconds)
        if not held:
            self.s.residency.leaving = False
        return held

    def stay(self) -> None:
        """The dispatcher goes on after that."""
        self.s.residency.leaving = False
        self.proceed()

    @property
    def guest_waits(self) -> bool:
        """Whether the guest has said something since the dispatcher was stopped."""
        return says_something(self.s)

    def layout(self) -> list[tuple[int, int]]:
        """Address and size of what is mapped. The session is held, or away."""
        cdef uint64_t page = 0
        cdef uint64_t left
        found = []
        self._look_aside()
        left = self.s.window.used
        while left > 0:
            page = next_mapping(self.s, page)
            found.append(self._mapping(page, self.s.window.pages))
            left -= <uint64_t>self.s.window.pages[page] << PAGE_BITS
            page += self.s.window.pages[page]
        self._looked()
        return found

    cdef int _look_aside(self) except -1:
        """Like _look, of a session that is held, or away."""
        self._look(False)
        if not self.s.state.held and not self.s.residency.absent:
            over = self.s.state.ending
            pthread_mutex_unlock(&self.s.move.lock)
            raise SessionOver("the session is over") if over else ValueError("the session is neither held nor away")
        return 0

    def written(self) -> set[int]:
        """Addresses of the mapped pages that calls have named as their target since this was last asked."""
        cdef uint64_t page
        cdef uint64_t end
        found = set()
        for address, size in self.layout():
            page = page_of(self.s, address)
            end = page + (<uint64_t>size >> PAGE_BITS)
            while page < end:
                if self.s.residency.written == NULL or (self.s.residency.written[page >> 6] >> (page & 63)) & 1:
                    found.add(self.s.window.base + (page << PAGE_BITS))
                page += 1
        forget_written(self.s)
        return found

    def read_pages(self, uint64_t address, uint8_t[::1] target not None) -> None:
        """What the window holds there, into host memory. The session is held, and its device idle."""
        cdef int status
        cdef size_t size = target.shape[0]
        self._look(True)
        with nogil:
            status = read_pages(self.s, address, &target[0], size)
        self._looked()
        _check(status, "reading memory")

    def write_pages(self, uint64_t address, const uint8_t[::1] source not None) -> None:
        """Out of host memory, where the session is coming back to."""
        cdef int status
        cdef size_t size = source.shape[0]
        self._look_aside()
        with nogil:
            status = write_pages(self.s, address, &source[0], size)
        self._looked()
        _check(status, "writing memory")

    def clear_pages(self, uint64_t address, uint64_t size) -> None:
        """Nothing but zeroes, where the session is coming back to."""
        cdef int status
        self._look_aside()
        with nogil:
            status = clear_pages(self.s, address, size)
        self._looked()
        _check(status, "clearing memory")

    def page_hashes(self, pages: list[int]) -> list[bytes]:
        """16 bytes for each page at these addresses of the window."""
        cdef vector[uint64_t] wanted = pages
        cdef vector[uint8_t] out
        cdef int status
        if not pages:
            return []
        out.resize(wanted.size() * HASH_SIZE)
        self._look(True)
        with nogil:
            status = cu.cuCtxSetCurrent(self.s.device.primary.cu)
            status = status or hash_pages(self.s, wanted.data(), wanted.size(), out.data())
        self._looked()
        _check(status, "hashing memory")
        hashes = (<char *>out.data())[:out.size()]
        return [hashes[at:at + HASH_SIZE] for at in range(0, len(hashes), HASH_SIZE)]

    def pin_copy(self, uint8_t[::1] data not None) -> bool:
        """Page-locks a copy until unpin_copy, or the end of the session; False: the driver does not."""
        cdef int status
        self._look(False)
        with nogil:
            status = pin_copy(self.s, &data[0], data.shape[0])
        self._looked()
        return status == cu.CUDA_SUCCESS

    def unpin_copy(self, uint8_t[::1] data not None) -> None:
        """The copy is not page-locked any more, and may be unmapped."""
        with nogil:
            pthread_mutex_lock(&self.s.move.lock)
            unpin_copy(self.s, &data[0])
            pthread_mutex_unlock(&self.s.move.lock)

    def send_away(self) -> None:
        """Gives the session's physical memory back; what it held must have been copied. It is held, its device idle. The
        dispatcher waits from then on, when it needs the memory."""
        cdef int status
        self._look(True)
        with nogil:
            status = send_away(self.s)
        self._looked()
        _check(status, "giving memory back to the device")

    def bring_back(self) -> bool:
        """Maps physical memory again at all addresses; False: the device has not enough."""
        cdef int status
        self._look_aside()
        with nogil:
            status = bring_back(self.s)
        self._looked()
        if status == cu.CUDA_ERROR_OUT_OF_MEMORY:
            return False
        _check(status, "mapping memory again")
        return True

    def settle_back(self) -> None:
        """All is as it was before it was sent away: the dispatcher goes on."""
        self._look_aside()
        settle_back(self.s)
        self._looked()
