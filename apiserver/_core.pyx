# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The session engine: from the guest's socket to the driver and back, without the GIL. DESIGN.md explains it."""

from gpuferry.apiserver.end import End
from gpuferry.specs._generated import node_pb2

include "core/declarations.pxi"
include "_generated/frames.pxi"
include "_generated/messages.pxi"
include "_generated/kinds.pxi"
include "core/types.pxi"
include "core/rooms/stats.pxi"
include "core/rooms/device.pxi"
include "core/rooms/budget.pxi"
include "core/rooms/window.pxi"
include "core/rooms/book.pxi"
include "core/rooms/sharing.pxi"
include "core/rooms/records.pxi"
include "core/rooms/aliases.pxi"
include "core/rooms/aside.pxi"
include "core/rooms/move.pxi"
include "core/rooms/objects.pxi"
include "core/rooms/images.pxi"
include "core/rooms/links.pxi"
include "core/rooms/graphs.pxi"
include "core/rooms/arrays.pxi"
include "core/rooms/staging.pxi"
include "core/rooms/streams.pxi"
include "core/rooms/input.pxi"
include "core/rooms/connection.pxi"
include "core/rooms/state.pxi"
include "core/rooms/journal.pxi"
include "core/rooms/waiters.pxi"
include "core/rooms/host_calls.pxi"
include "core/rooms/log.pxi"
include "core/rooms/output.pxi"
include "core/rooms/sending.pxi"
include "core/rooms/arrival.pxi"
include "core/rooms/turn.pxi"
include "core/rooms/residency.pxi"
include "core/session.pxi"
include "core/stats.pxi"
include "core/device.pxi"
include "core/budget.pxi"
include "core/state.pxi"
include "core/handles.pxi"
include "core/journal.pxi"
include "core/socket.pxi"
include "core/send.pxi"
include "core/log.pxi"
include "core/connection.pxi"
include "core/hold.pxi"
include "core/output.pxi"
include "core/waiters.pxi"
include "core/staging.pxi"
include "core/streams.pxi"
include "core/green.pxi"
include "core/tensor_maps.pxi"
include "core/book.pxi"
include "core/memory.pxi"
include "core/records.pxi"
include "core/sharing.pxi"
include "core/shared_moves.pxi"
include "core/aliases.pxi"
include "core/aside.pxi"
include "core/hash.pxi"
include "core/pointers.pxi"
include "core/residency.pxi"
include "core/images.pxi"
include "core/links.pxi"
include "core/graphs.pxi"
include "core/conditionals.pxi"
include "core/codec.pxi"
include "core/arrays.pxi"
include "core/mipmaps.pxi"
include "core/textures.pxi"
include "core/references.pxi"
include "_generated/codecs.pxi"
include "core/context_ops.pxi"
include "core/session_ops.pxi"
include "core/host_calls.pxi"
include "core/turn.pxi"
include "core/restore_ops.pxi"
include "_generated/objects.pxi"
include "_generated/dispatch.pxi"
include "core/receive.pxi"
include "core/scrub.pxi"



class DeviceError(RuntimeError):
    """A driver call failed."""


class SessionOver(RuntimeError):
    """There is no session (any more) that could be moved."""


def _check(int status, str doing):
    cdef const char *name = NULL
    if status != cu.CUDA_SUCCESS:
        cu.cuGetErrorName(<cu.CUresult>status, &name)
        raise DeviceError(f"{doing}: {name.decode() if name != NULL else status}")


cdef gf_tls *_restore_tls(bytes state) except? NULL:
    """NULL: in clear."""
    cdef char why[256]
    cdef const char *data = state
    cdef gf_tls *tls
    if not state:
        return NULL
    tls = gf_tls_restore(data, len(state), why, sizeof(why))
    if tls == NULL:
        raise RuntimeError((<bytes>why).decode(errors="replace"))
    return tls


cdef class Core:
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
        return [gpu_at_place(self.s, place).admitted for place in range(count)]

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

    # What follows is for a thread that moves the session; the dispatcher runs on its own (core/hold.pxi).

    cdef int _look(self, bint still) except -1:
        """Takes the lock that keeps the session from ending meanwhile."""
        with nogil:
            pthread_mutex_lock(&self.s.move.lock)
        if not self.s.state.serving or (still and not self.s.state.held):
            over = not self.s.state.serving or self.s.state.ending
            pthread_mutex_unlock(&self.s.move.lock)
            raise SessionOver("the session is over") if over else ValueError("the session is not held")
        return 0

    cdef int _looked(self) except -1:
        pthread_mutex_unlock(&self.s.move.lock)
        return 0

    def hold(self, double seconds) -> bool:
        """Stops the dispatcher between two frames; False: it did not come to that in time."""
        cdef uint64_t patience = <uint64_t>(seconds * 1e9)
        cdef bint held
        with nogil:
            held = hold_session(self.s, patience)
        return held

    def proceed(self) -> None:
        """The dispatcher goes on, and what goes to the guest."""
        with nogil:
            release_session(self.s)

    def leave(self) -> None:
        """The session is elsewhere: this one ends, without a byte to the guest."""
        self._look(True)
        leave_session(self.s)
        self._looked()

    def drain(self, double seconds) -> str:
        """Waits until the device is idle and nobody waits for it; what keeps it from that, or nothing."""
        cdef uint64_t patience = <uint64_t>(seconds * 1e9)
        cdef const char *name = NULL
        cdef int status
        cdef bint functions
        self._look(True)
        with nogil:
            status = drain_session(self.s, patience)
            functions = awaits_guest(self.s)
        self._looked()
        if status == cu.CUDA_ERROR_NOT_READY:
            if functions:
                return f"functions of the program that stand in streams are still running after {seconds:g} s"
            return f"the device is still at work after {seconds:g} s"
        if status != cu.CUDA_SUCCESS:
            cu.cuGetErrorName(<cu.CUresult>status, &name)
            return f"the device has failed: {name.decode() if name != NULL else status}"
        return ""

    def snapshot(self, double patience = 10.0) -> list[tuple[bytes, int]]:
        """The frames, with digests of their answers, that make what the session has now; the tail begins."""
        cdef vector[uint8_t] out
        mine = not self.s.state.held
        if mine and not self.hold(patience):
            self._look(False)
            self._looked()
            raise TimeoutError(f"the session came to no end of a call in {patience:g} s")
        try:
            self._look(True)
            with nogil:
                write_journal(self.s, &out)
            lost = self.s.journal.unkept
            self._looked()
        finally:
            if mine:
                self.proceed()
        if lost:
            raise MemoryError("there was no memory for the session's journal")
        return _kept(&out)

    def tail(self) -> list[tuple[bytes, int]]:
        """What has come to the journal since the snapshot, or since this was last asked for; destructions too."""
        cdef vector[uint8_t] out
        self._look(False)
        with nogil:
            write_tail(self.s, &out)
        lost = self.s.journal.tail_lost or self.s.journal.unkept
        self._looked()
        if lost:
            raise MemoryError("the session changes too fast")
        return _kept(&out)

    def forget_tail(self) -> None:
        """Nobody moves the session (any more)."""
        end_tail(self.s)
        carry_nothing(self.s)

    def unread(self) -> bytes:
        """What the guest has sent and was not looked at."""
        self._look(True)
        data = (<char *>self.s.input.buffer + self.s.input.begin)[:self.s.input.end - self.s.input.begin]
        self._looked()
        return data

    def unsent(self) -> bytes:
        """What the guest has yet to get, which is not written any more until proceed()."""
        cdef vector[uint8_t] out
        self._look(True)
        with nogil:
            write_unsent(self.s, &out)
        self._looked()
        return (<char *>out.data())[:out.size()]

    def unsent_head(self) -> int:
        """As many bytes of what was not sent end a frame that was begun."""
        self._look(True)
        head = unsent_head(self.s)
        self._looked()
        return head

    def events(self) -> list[tuple[int, int, int]]:
        """Handle, flags and age in nanoseconds of every event that was recorded."""
        cdef vector[uint64_t] out
        cdef int status
        self._look(True)
        with nogil:
            status = event_ages(self.s, &out)
        self._looked()
        _check(status, "asking for the age of events")
        return [(out[i], out[i + 1], <int64_t>out[i + 2]) for i in range(0, out.size(), 3)]

    def state(self) -> bytes:
        """The body of sessionRestoreCounters."""
        cdef gf_req_sessionRestoreCounters state
        cdef gf_counted_calls calls
        cdef gf_counted_function function
        self._look(True)
        pthread_mutex_lock(&self.s.lock)
        state.latched = self.s.state.latched
        state.latched_op = self.s.state.latched_op
        pthread_mutex_unlock(&self.s.lock)
        state.calls_async = self.s.stats.calls_async
        state.calls_sync = self.s.stats.calls_sync
        state.bytes_in = self.s.stats.bytes_in
        state.bytes_out = self.s.stats.bytes_out
        state.launches = self.s.stats.launches
        state.busy_nanoseconds = self.s.stats.busy_nanoseconds
        counted = []
        for entry in self.calls():
            calls.operation, calls.succeeded, calls.failed, calls.timed, calls.nanoseconds = entry
            counted.append((<char *>&calls)[:sizeof(calls)])
        state.operations = len(counted)
        for entry in self.unsupported():
            function.function, function.calls = entry
            counted.append((<char *>&function)[:sizeof(function)])
        state.functions = len(counted) - state.operations
        self._looked()
        return (<char *>&state)[:sizeof(state)] + b"".join(counted)

    def resume_state(self) -> bytes | None:
        """The body of sessionRestoreResumable; None: the session does not outlive its connection."""
        cdef gf_req_sessionRestoreResumable state
        self._look(True)
        freeze(self.s, True)
        pthread_mutex_lock(&self.s.sending.lock)
        find_boundary(self.s, self.s.sending.log.begin)
        state.received = self.s.connection.received
        state.told = self.s.connection.told
        state.begin = self.s.sending.log.begin
        state.boundary = min(self.s.sending.log.boundary, self.s.sending.log.end)
        state.written = self.s.sending.log.written
        pthread_mutex_unlock(&self.s.sending.lock)
        resumable = self.s.connection.resumable
        self._looked()
        return (<char *>&state)[:sizeof(state)] if resumable else None

    def tls_state(self) -> bytes:
        """What whoever gets the guest's socket next needs to go on with its TLS; empty: it is in clear. The session is
        held, and what is unsent was asked for."""
        cdef size_t size
        cdef uint8_t *state = <uint8_t *>malloc(GF_TLS_STATE_MAX)
        try:
            self._look(True)
            size = save_tls(self.s, state)
            self._looked()
            return (<char *>state)[:size]
        finally:
            free(state)

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
        if data.shape[0] == 0:
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

    # What follows is for a thread that sends the session's memory away and brings it back (core/residency.pxi).

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

    def images(self, also=()) -> list[tuple[bytes, bytes]]:
        """Hash and bytes of every image that something of the session was made from; and of those with the hashes
        `also` that are still here."""
        cdef vector[PBytes] found
        cdef bint complete
        cdef Bytes *image
        images = []
        self._look(False)
        hashes = b"".join(also)
        complete = loaded_images(self.s, <const uint8_t *><char *>hashes, len(hashes) // GF_HASH_SIZE, &found)
        try:
            for image in found:
                images.append(((<char *>image.hash)[:GF_HASH_SIZE], (<char *>image.data)[:image.size]))
        finally:
            let_go(self.s, &found)
            self._looked()
        if not complete:
            raise LookupError("an image that the session loaded is no longer held")
        return images

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


cdef vector[uint64_t] _bounds(ranges):
    """From first and last addresses."""
    cdef vector[uint64_t] bounds
    for first, last in ranges:
        bounds.push_back(first)
        bounds.push_back(last - first)
    return bounds


def blank_pages(const uint8_t[::1] data not None) -> list[bool]:
    """Of each page of host memory, whether it is zero everywhere."""
    cdef size_t at
    cdef size_t pages = data.shape[0] >> PAGE_BITS
    cdef vector[bint] blank
    with nogil:
        for at in range(pages):
            blank.push_back(is_blank(&data[at << PAGE_BITS], PAGE))
    return [bool(one) for one in blank]


cdef list _kept(vector[uint8_t] *written):
    """As `write_down` left it."""
    cdef size_t at = 0
    cdef uint64_t answer
    cdef gf_header *header
    found = []
    while at < written.size():
        memcpy(&answer, written.data() + at, sizeof(answer))
        at += sizeof(answer)
        header = <gf_header *>(written.data() + at)
        found.append(((<char *>header)[:header.size], answer))
        at += header.size
    return found
