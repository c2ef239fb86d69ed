# For a thread that moves the session, too.

cdef class Contents(Stillness):
    """What memory the session has, what it holds, and what of it is other processes', too."""

    def variable(self, uint64_t owner, uint32_t context, bytes name) -> tuple[int, int, bool] | None:
        """Address and size of a module's or library's variable in a context (as headers name it), and whether the program
        was told; None: it has none."""
        cdef cu.CUdeviceptr address = 0
        cdef size_t size = 0
        cdef const char *text = name
        cdef int status
        self._look(True)
        with nogil:
            status = find_variable(self.s, owner, context, text, &address, &size)
        self._looked()
        if status == cu.CUDA_ERROR_NOT_FOUND:
            return None
        _check(status, "looking for a variable")
        return address, size, is_handed_out(self.s, address, size)

    cdef vector[uint64_t] _aside(self, list pages) except *:
        """The second mappings of these pages. The session is looked at."""
        cdef vector[uint64_t] found
        cdef uint64_t page
        for page in pages:
            if page & (PAGE - 1) or not is_aside(self.s, page, PAGE):
                raise ValueError(f"{page:#x} is no page that is mapped a second time")
            found.push_back(aside_of(self.s, page))
        return found

    def pointing(self, pages: list[int], ranges: list[tuple[int, int]]) -> int:
        """A word within the first one to the last address of a range, if there is one in these pages, as the second mapping
        has them; 0: there is none."""
        cdef vector[uint64_t] aside
        cdef vector[uint64_t] bounds = _bounds(ranges)
        cdef uint64_t word = 0
        cdef uint64_t began = now()
        cdef int status = cu.CUDA_SUCCESS
        self._look(False)
        try:
            aside = self._aside(pages)
            with nogil:
                if not aside.empty() and not bounds.empty():
                    status = cu.cuCtxSetCurrent(self.s.device.primary.cu)
                    status = status or pointer_on_device(self.s, aside.data(), aside.size(), bounds.data(),
                                                         bounds.size() // 2, &word)
        finally:
            self.s.turn.own += now() - began
            self._looked()
        _check(status, "looking for addresses in memory")
        return word

    def pointing_here(self, const uint8_t[::1] data not None, ranges: list[tuple[int, int]], bint anywhere) -> int:
        """Likewise in host memory: in its aligned words, or (`anywhere`) in all."""
        cdef vector[uint64_t] bounds = _bounds(ranges)
        cdef uint64_t word
        if data.shape[0] == 0 or bounds.empty():
            return 0
        with nogil:
            word = pointer_into(&data[0], data.shape[0], 1 if anywhere else sizeof(word), bounds.data(), bounds.size() // 2)
        return word

    def arrays(self) -> list[tuple[int, int, int, int, int]]:
        """Of every array: handle, context as a header names it, bytes of a row, rows, layers."""
        cdef vector[uint64_t] out
        self._look(True)
        with nogil:
            list_arrays(self.s, &out)
        self._looked()
        return [tuple(out[i + n] for n in range(5)) for i in range(0, out.size(), 5)]

    def read_array(self, uint64_t handle, uint64_t row, uint64_t layer, uint64_t rows,
                   uint8_t[::1] target not None) -> None:
        """Whole rows of one layer of an array."""
        cdef int status
        self._look(True)
        with nogil:
            status = read_array(self.s, handle, row, layer, rows, &target[0], target.shape[0])
        self._looked()
        _check(status, "reading an array")

    def read_variable(self, uint64_t address, uint8_t[::1] target not None) -> None:
        """The content of a variable that `variable` found."""
        self._read(True, address, target)

    cdef tuple _mapping(self, uint64_t page, const uint32_t *pages):
        """Address and size of what begins there."""
        return self.s.window.base + (page << PAGE_BITS), <uint64_t>pages[page] << PAGE_BITS

    def mappings(self) -> list[tuple[int, int]]:
        """Address and size of what is mapped, but for what other processes have made."""
        cdef uint64_t page
        found = []
        self._look(False)
        for page in range(self.s.window.reached):
            if is_own(self.s, page):
                found.append(self._mapping(page, self.s.window.pages))
        self._looked()
        return found

    def carry_orphans(self) -> None:
        """Memory whose maker has ended, or has freed it, moves with the first of those that have opened it."""
        cdef int status
        self._look(True)
        with nogil:
            status = carry_orphans(self.s)
        self._looked()
        _check(status, "carrying memory whose maker has ended, and which is open more than once")

    def carried(self) -> list[tuple[int, int]]:
        """Address and size of the mappings that the session carries, and that others have made."""
        self._look(True)
        found = [self._mapping(page, self.s.window.pages) for page in self.s.sharing.carried[0]]
        self._looked()
        return found

    @property
    def claimed(self) -> list[int]:
        """Bytes that the session has claimed in its lease's book, by the program's numbers of its devices; 0: it has the
        lease alone."""
        return [claimed(self.s, self.s.device.shown[number]) for number in range(self.s.device.visible)]

    def exports(self) -> list[tuple[bytes, int, int, int]]:
        """What others may find of this session: token, address and size, or the event's handle."""
        cdef vector[Exported] found
        self._look(True)
        with nogil:
            list_exports(self.s, &found)
        self._looked()
        return [((<char *>one.token)[:GF_TOKEN_SIZE], one.address, one.size, one.event) for one in found]

    def imports(self) -> list[tuple[bytes, int, int, int, int, int]]:
        """What the session has found of others: token, session (0: that of the seat), seat, address, size (0: it is not
        mapped yet), and a context of the device for which it was opened, as a header says it."""
        cdef vector[Imported] found
        self._look(True)
        with nogil:
            list_imports(self.s, &found)
        self._looked()
        return [((<char *>one.token)[:GF_TOKEN_SIZE], one.session, one.seat, one.address, one.size, one.context)
                for one in found]

    def opened_events(self) -> list[tuple[bytes, int, int, int]]:
        """Events that others have made: token, session, handle, context as a header says it."""
        cdef vector[OpenedEvent] found
        self._look(True)
        with nogil:
            list_opened_events(self.s, &found)
        self._looked()
        return [((<char *>one.token)[:GF_TOKEN_SIZE], one.session, one.handle, one.context) for one in found]

    def opened_aliases(self) -> list[tuple[bytes, int]]:
        """The frames that show again what others have made."""
        cdef vector[uint8_t] out
        self._look(True)
        with nogil:
            write_aliases(self.s, &out, True)
        self._looked()
        return _kept(&out)

    def alias(self) -> list[tuple[int, int]]:
        """Maps what is mapped now a second time: from there it is read, hashed and shared, whatever the guest unmaps.
        Address and size of what is there."""
        cdef uint64_t page
        cdef int status
        found = []
        self._look(False)
        with nogil:
            status = cu.cuCtxSetCurrent(self.s.device.primary.cu)
            status = status or alias_mappings(self.s)
        if status == cu.CUDA_SUCCESS:
            for page in range(self.s.window.reached):
                if self.s.move.aside.pages[page] != 0:
                    found.append(self._mapping(page, self.s.move.aside.pages))
        self._looked()
        _check(status, "mapping the session's memory a second time")
        return found

    def drop_aliases(self) -> None:
        """The end of that; does not wait for the device."""
        cdef int status = cu.CUDA_SUCCESS
        cdef bint mine = not self.s.state.held
        cdef bint still = not mine or self.hold(0.1)
        try:
            self._look(False)
            with nogil:
                if still:
                    status = drop_aside_idle(self.s)
                else:
                    self.s.move.aside.unwanted = True
            self._looked()
        finally:
            if mine and still:
                self.proceed()
        _check(status, "unmapping the session's memory a second time")

    def share(self, uint64_t address) -> int:
        """A descriptor of the physical memory of the mapping that begins there; the caller closes it."""
        cdef int fd = -1
        cdef int status
        self._look(False)
        with nogil:
            status = descriptor(self.s, address, &fd)
        self._looked()
        _check(status, "sharing memory")
        return fd

    def pin(self, uint8_t[::1] target not None) -> None:
        """Page-locks a buffer, for the rest of the session: reading into it is faster then."""
        cdef int status
        self._look(False)
        with nogil:
            status = cu.cuCtxSetCurrent(self.s.device.primary.cu)
            status = status or cu.cuMemHostRegister(&target[0], target.shape[0], cu.CU_MEMHOSTREGISTER_PORTABLE)
            if status == cu.CUDA_SUCCESS:
                self.s.move.pinned.push_back(<uint64_t>&target[0])
        self._pinned.append(target)
        self._looked()
        _check(status, "page-locking memory")

    def read(self, uint64_t address, uint8_t[::1] target not None) -> None:
        """What the second mapping holds."""
        self._read(False, address, target)

    cdef int _read(self, bint variable, uint64_t address, uint8_t[::1] target) except -1:
        cdef int status = cu.CUDA_SUCCESS
        cdef size_t size = target.shape[0]
        if size == 0:
            return 0
        self._look(variable)
        with nogil:
            if variable:
                status = read_by(self.s, gpu_at_place(self.s, 0), address, &target[0], size)
            elif is_aside(self.s, address, size):
                status = read_aside(self.s, address, &target[0], size)
            else:
                status = cu.CUDA_ERROR_INVALID_VALUE
        self._looked()
        _check(status, "reading memory")
        return 0

    def hashes(self, pages: list[int]) -> bytes:
        """16 bytes for each page at these addresses, as the second mapping has them."""
        cdef vector[uint64_t] aside
        cdef vector[uint8_t] out
        cdef uint64_t began = now()
        cdef int status
        self._look(False)
        try:
            aside = self._aside(pages)
            out.resize(aside.size() * HASH_SIZE)
            with nogil:
                status = cu.cuCtxSetCurrent(self.s.device.primary.cu)
                status = status or hash_pages(self.s, aside.data(), aside.size(), out.data())
        finally:
            self.s.turn.own += now() - began
            self._looked()
        _check(status, "hashing memory")
        return (<char *>out.data())[:out.size()]

    def hot(self) -> list[int]:
        """Where the mappings begin that launches have named since this was last asked, or since the snapshot."""
        cdef uint64_t page
        cdef uint64_t next
        found = []
        self._look(False)
        for page in range(self.s.window.reached):
            if is_backed(self.s, page):
                for next in range(page, page + self.s.window.pages[page]):
                    if (self.s.window.touched[next >> 6] >> (next & 63)) & 1:
                        found.append(self.s.window.base + (page << PAGE_BITS))
                        break
        madvise(self.s.window.touched, self.s.window.size >> (PAGE_BITS + 3), MADV_DONTNEED)
        self._looked()
        return found

    @property
    def granularity(self) -> int:
        """Of mappings."""
        return PAGE


cdef vector[uint64_t] _bounds(ranges):
    """From first and last addresses."""
    cdef vector[uint64_t] bounds
    for first, last in ranges:
        bounds.push_back(first)
        bounds.push_back(last - first)
    return bounds
