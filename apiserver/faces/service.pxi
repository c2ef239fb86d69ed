# For whoever serves sessions on the devices, one after the other (server.py, session.py).

cdef class Service:
    """The devices, their warm contexts, and the one session that may be under way."""

    cdef Session *s
    cdef list _devices
    cdef bytes _links
    cdef list _pinned
    cdef readonly int driver_version

    def __cinit__(self, *ordinals):
        cdef gf_device description
        cdef vector[gf_device_link] links
        cdef vector[int] wanted
        cdef int version = 0
        cdef pthread_condattr_t monotonic
        cdef Session *s = <Session *>calloc(1, sizeof(Session))
        self.s = s
        self._pinned = []
        s.images.globals = new cpp_map[uint64_t, Global]()
        s.images.lent = new cpp_map[uint64_t, uint64_t]()
        s.images.found = new cpp_map[uint64_t, uint64_t]()
        s.images.held = new vector[PBytes]()
        s.waiters.threads = new vector[pthread_t]()
        s.move.pinned = new vector[uint64_t]()
        s.residency.pinned = new vector[uint64_t]()
        s.arrival.descriptors = new vector[int]()
        s.arrival.input = new vector[uint8_t]()
        s.arrival.output = new vector[uint8_t]()
        pthread_mutex_init(&s.move.lock, NULL)
        pthread_mutex_init(&s.window.lock, NULL)
        pthread_mutex_init(&s.book.lock, NULL)
        pthread_mutex_init(&s.lock, NULL)
        pthread_mutex_init(&s.sending.lock, NULL)
        # Waits are measured by it, so that nobody who sets the time of day makes them longer.
        pthread_condattr_init(&monotonic)
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC)
        pthread_cond_init(&s.changed, &monotonic)
        pthread_cond_init(&s.waiters.work, &monotonic)
        pthread_cond_init(&s.sending.sendable, &monotonic)
        pthread_cond_init(&s.sending.drained, &monotonic)
        pthread_condattr_destroy(&monotonic)
        reserve_host_calls(s)
        register_all()
        prepare_wake()
        if prepare_turns(s) < 0:
            raise OSError("no descriptor is left")
        _check(prepare_messages(s), "making room for what the device says")
        _check(cu.cuDriverGetVersion(&version), "asking for the driver's version")
        if version < MINIMUM_DRIVER:
            raise DeviceError(f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}; 12.8 is needed")
        self.driver_version = version
        if not 0 < len(ordinals) <= GF_DEVICES_MAX:
            raise ValueError(f"{len(ordinals)} devices: there can be 1 to {GF_DEVICES_MAX}")
        for ordinal in ordinals:
            wanted.push_back(ordinal)
        named = f"device{'s' * (len(ordinals) > 1)} {', '.join(map(str, ordinals))}"
        _check(start_devices(s, &wanted), f"initialising {named}")
        _check(capture_output(s), "redirecting the standard output")
        self._devices = []
        for place in range(s.device.count):
            _check(describe_device(s, gpu_at_place(s, place), &description), f"describing {named}")
            self._devices.append((<char *>&description)[:sizeof(gf_device)])
        _check(describe_links(s, &links), f"describing {named}")
        self._links = (<char *>links.data())[:links.size() * sizeof(gf_device_link)]
        begin_device(s)

    @property
    def device_name(self) -> str:
        """The name of the first device."""
        return (<gf_device *><char *>self._devices[0]).name.decode(errors="replace")

    @property
    def device_uuid(self) -> bytes:
        """The UUID of the first device: 16 bytes."""
        return (<char *>(<gf_device *><char *>self._devices[0]).uuid)[:16]

    @property
    def device_memory(self) -> int:
        """Bytes of memory that the first device has in all."""
        return (<gf_device *><char *>self._devices[0]).total_memory

    @property
    def window(self) -> tuple[int, int]:
        return self.s.window.base, self.s.window.size

    @property
    def simulated(self) -> bool:
        return is_simulated()

    def welcome(self, proof: bytes, uint64_t session, uint64_t quota, uint32_t resume_ms) -> bytes:
        """The WELCOME frame of a session."""
        cdef gf_header header
        cdef gf_welcome welcome
        if len(proof) != sizeof(welcome.proof):
            raise ValueError("a proof has 32 bytes")
        memset(&header, 0, sizeof(header))
        memset(&welcome, 0, sizeof(welcome))
        told = b"".join(self._devices) + self._links
        header.size = <uint32_t>(sizeof(gf_header) + sizeof(gf_welcome) + len(told))
        header.op = GF_OP_WELCOME
        memcpy(welcome.proof, <char *>proof, sizeof(welcome.proof))
        welcome.session = session
        welcome.window_base = self.s.window.base
        welcome.window_size = self.s.window.size
        welcome.quota = quota
        welcome.granularity = PAGE
        welcome.driver_version = self.driver_version
        welcome.device_count = len(self._devices)
        welcome.resume_ms = resume_ms
        welcome.image_kinds = GF_IMAGE_PTX | (GF_IMAGE_SASS if loads_machine_code() else 0)
        return (<char *>&header)[:sizeof(header)] + (<char *>&welcome)[:sizeof(welcome)] + told

    def no_session(self) -> bytes:
        """The REFUSED frame for a guest that wants to go on with a session that is over."""
        cdef gf_header header
        cdef gf_refused refused
        cdef bytes text = b"the session is over, or does not hold what would have to be sent again"
        memset(&header, 0, sizeof(header))
        header.size = <uint32_t>(sizeof(header) + sizeof(refused) + len(text))
        header.op = GF_OP_REFUSED
        refused.reason = GF_REFUSED_NO_SESSION
        refused.cuda_error = cu.CUDA_ERROR_DEVICE_UNAVAILABLE
        return (<char *>&header)[:sizeof(header)] + (<char *>&refused)[:sizeof(refused)] + text

    def begin(self, int fd, uint64_t quota, bint resumable, bint restore = False, spoken: bytes | None = None,
              tls: bytes = b"", uint64_t host_memory = 0) -> None:
        """Prepares for a session on a connected socket: statistics and end() refer to it from here on. To be restored,
        it comes over that socket from another server, and goes on with its guest's one. `spoken`: wire ids, 16 bits
        each, of the operations that its guest lays out as this build does; None: all. `tls`: what TLS needs to go on
        there (native/tls); empty: in clear. `host_memory`: bytes that it may make this process keep beside staging;
        0: as much as is usual."""
        cdef const char *ids
        self._pinned.clear()
        begin_session(self.s, fd, _restore_tls(tls), quota, resumable, restore, host_memory)
        if spoken is not None:
            ids = spoken
            limit_to(self.s, <const uint16_t *>ids, len(spoken) // sizeof(uint16_t))

    def open_book(self, int book, uint32_t seat, bint tell) -> None:
        """The session is one of several processes that have the lease: what it maps it claims in this book, an open file,
        from here on. `tell`: its guest, which does not know."""
        with nogil:
            share_lease(self.s, book, seat)
            if tell:
                tell_shared(self.s)

    def open_turns(self, int fd, int page) -> bool:
        """From the next frame on the session works only while it has a turn of the arbiter at the other end of this
        socket, which it takes, and whose page this is. False: the page cannot be read."""
        cdef bint fine
        with nogil:
            fine = open_turns(self.s, fd, page)
        return fine

    def give_up_turn(self) -> None:
        """The guest is gone: what it asked for and was not begun is not waited for."""
        give_up_turn(self.s)

    def go_on_without_guest(self) -> None:
        """It is gone for good: streams do not wait for its functions, be the dispatcher itself waiting for a stream."""
        with nogil:
            give_up_host_calls(self.s)

    def wanted(self) -> tuple[int, int, bytes] | None:
        """What the session wants to open, once: a number, the session that exported it, its token; None: nothing."""
        cdef uint8_t token[GF_TOKEN_SIZE]
        cdef uint64_t session = 0
        cdef uint32_t number = next_wanted(self.s, &session, token)
        return (number, session, (<char *>token)[:GF_TOKEN_SIZE]) if number else None

    def export(self, token: bytes, uint32_t seat) -> tuple[int, int, list[tuple[int, int, int]]] | None:
        """What was exported by this name, for the process with this seat: where it begins in its first part, its bytes,
        and of each part a new descriptor, pages and extent. None: there is no such thing."""
        cdef vector[Segment] parts
        cdef uint64_t offset = 0
        cdef uint64_t size = 0
        cdef const uint8_t *name = token
        cdef int status
        if len(token) != GF_TOKEN_SIZE:
            return None
        with nogil:
            status = parts_of_export(self.s, name, seat, &offset, &size, &parts)
        if status != cu.CUDA_SUCCESS:
            return None
        return offset, size, [(part.fd, part.pages, part.extent) for part in parts]

    def deliver(self, uint32_t number, bint found, bint more, uint64_t offset, uint64_t size,
                parts: list[tuple[int, int, int]]) -> None:
        """What was wanted with this number, or as many parts of it; takes the descriptors."""
        cdef vector[Segment] given
        cdef Segment part
        for part.fd, part.pages, part.extent in parts:
            given.push_back(part)
        with nogil:
            deliver_import(self.s, number, found, more, offset, size, &given)

    def give_up_imports(self) -> None:
        """Nobody answers any more what was asked: the guest is told so."""
        with nogil:
            give_up_imports(self.s)

    @property
    def taken_over(self) -> bool:
        """Whether a session that was to be restored is here."""
        return self.s.arrival.taken_over

    def serve(self) -> End:
        """Serves the session until it ends; returns why. Blocks, without the GIL."""
        with nogil:
            run_session(self.s)
        return End(self.s.state.cause, self.s.state.reason.decode(errors="replace"))

    def resume(self, int fd, proof: bytes, uint64_t received, tls: bytes = b"") -> bool:
        """Goes on with another connection in place of the first, whose number it takes; False: refused."""
        cdef gf_tls *records = NULL
        cdef const uint8_t *data = proof
        cdef bint fine
        if len(proof) != GF_HASH_SIZE:
            raise ValueError("a proof has 32 bytes")
        records = _restore_tls(tls)
        with nogil:
            fine = resume_session(self.s, fd, records, data, received)
        return fine

    @property
    def following(self) -> bool:
        """Whether the guest has taken leave of where it was, and is expected to resume the session here."""
        return self.s.connection.following

    @property
    def relayed(self) -> bool:
        """Whether the guest speaks by way of where it was before."""
        return self.s.connection.by_link

    @property
    def arriving(self) -> bool:
        """Whether the guest is taking leave of where it was before, or has, and is not here yet."""
        return self.s.connection.following or self.s.connection.relayed_tail > 0

    def end(self, end: End) -> None:
        """Ends the session from another thread."""
        cdef bytes text = end.reason.encode()[:REASON_SIZE - 1]
        end_session(self.s, end.cause, text)
        if not self.s.state.left:
            shutdown(self.s.connection.fd, SHUT_RD)

    def forward_output(self) -> None:
        """Sends what kernels printed, for a guest that asks nothing."""
        with nogil:
            pthread_mutex_lock(&self.s.sending.lock)
            forward_output(self.s)
            pthread_mutex_unlock(&self.s.sending.lock)

    @property
    def waiting(self) -> bool:
        """Whether the guest waits for the device, or for room there."""
        return self.s.waiters.tasks > 0 or self.s.residency.waiting

    @property
    def waits_in_call(self) -> bool:
        """Whether a call that has begun waits for the session's memory, or for room: until then it cannot be held."""
        cdef bint waits
        pthread_mutex_lock(&self.s.lock)
        waits = self.s.residency.waiting and self.s.residency.in_call
        pthread_mutex_unlock(&self.s.lock)
        return waits

    @property
    def bell(self) -> int:
        """An eventfd that rings when a kernel is launched in a session that was left to itself."""
        return self.s.sending.output.bell

    def rest(self) -> None:
        """The session is left to itself until its next launch."""
        self.s.sending.output.resting = True

    def scrub(self) -> bool:
        """Removes everything the session made; False: it could not be proved, this process must go."""
        cdef int status
        with nogil:
            status = scrub(self.s)
        return status == cu.CUDA_SUCCESS

    @property
    def may_never_end(self) -> bool:
        """Whether the session's work may go on for ever: it is more than copies."""
        return may_never_end(self.s)

    def stats(self) -> dict[str, int]:
        """Counters of the session under way, or of the last one."""
        cdef const Stats *stats = &self.s.stats
        return {
            "memory_mapped": self.s.window.used,
            "memory_quota": self.s.window.quota,
            "calls_async": stats.calls_async,
            "calls_sync": stats.calls_sync,
            "bytes_in": stats.bytes_in,
            "bytes_out": stats.bytes_out,
            "launches": stats.launches,
            "host_memory": self.s.budget.used,
            "busy_nanoseconds": stats.busy_nanoseconds,
        }

    def mapped_on(self) -> list[int]:
        """Of several devices, the bytes that the session has on each; else nothing."""
        count = self.s.device.count if self.s.device.count > 1 else 0
        return [taken_on(self.s, gpu_at_place(self.s, place)) for place in range(count)]

    def calls(self) -> list[tuple[int, int, int, int, int]]:
        """Of every operation that was called: its id, calls that succeeded and failed, calls timed and their
        nanoseconds."""
        cdef const Stats *stats = &self.s.stats
        cdef Calls a
        cdef Calls b
        found = []
        for place in range(GF_OP_COUNT):
            a = stats.unanswered[place]
            b = stats.answered[place]
            if a.succeeded + a.failed + b.succeeded + b.failed > 0:
                found.append((operations[place], a.succeeded + b.succeeded, a.failed + b.failed,
                              a.timed + b.timed, a.nanoseconds + b.nanoseconds))
        return found

    def unsupported(self) -> list[tuple[int, int]]:
        """Functions that the guest was asked for and does not have: wire id and calls."""
        cdef const Stats *stats = &self.s.stats
        return [(GF_FUNCTION_FIRST + i, stats.unsupported[i])
                for i in range(GF_FUNCTION_LAST - GF_FUNCTION_FIRST + 1) if stats.unsupported[i] > 0]

    @property
    def steps(self) -> int:
        """How often the engine has gone from one object to another, since it started."""
        return self.s.objects.steps

    @property
    def broken(self) -> bool:
        """Whether the context is lost, as far as known."""
        return self.s.device.broken

    @property
    def devices(self) -> list[bytes]:
        """struct gf_device of each device"""
        return self._devices

    @property
    def links(self) -> bytes:
        """struct gf_device_link from each device to each, where they are several"""
        return self._links
