# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The session engine: from the guest's socket to the driver and back, without the GIL. DESIGN.md explains it."""

include "core/declarations.pxi"
include "_generated/messages.pxi"
include "core/types.pxi"
include "core/state.pxi"
include "core/handles.pxi"
include "core/journal.pxi"
include "core/send.pxi"
include "core/replay.pxi"
include "core/hold.pxi"
include "core/output.pxi"
include "core/waiters.pxi"
include "core/staging.pxi"
include "core/streams.pxi"
include "core/memory.pxi"
include "core/images.pxi"
include "core/context_ops.pxi"
include "core/session_ops.pxi"
include "_generated/dispatch.pxi"
include "core/receive.pxi"
include "core/device.pxi"
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


cdef class Core:
    """One device, its warm context, and the one session that may be under way."""

    cdef Session *s
    cdef bytes _device
    cdef readonly int driver_version

    def __cinit__(self, int ordinal):
        cdef gf_device description
        cdef int version = 0
        cdef Session *s = <Session *>calloc(1, sizeof(Session))
        self.s = s
        s.globals = new vector[Global]()
        s.images = new vector[PBytes]()
        s.waiters = new vector[pthread_t]()
        pthread_mutex_init(&s.move_lock, NULL)
        pthread_mutex_init(&s.lock, NULL)
        pthread_mutex_init(&s.send_lock, NULL)
        pthread_cond_init(&s.changed, NULL)
        pthread_cond_init(&s.work, NULL)
        pthread_cond_init(&s.sendable, NULL)
        pthread_cond_init(&s.drained, NULL)
        register_all()
        prepare_wake()
        _check(cu.cuDriverGetVersion(&version), "asking for the driver's version")
        if version < MINIMUM_DRIVER:
            raise DeviceError(f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}; 12.8 is needed")
        self.driver_version = version
        _check(start_device(s, ordinal), f"initialising device {ordinal}")
        _check(capture_output(s), "redirecting the standard output")
        _check(describe_device(s, &description), f"describing device {ordinal}")
        self._device = (<char *>&description)[:sizeof(gf_device)]

    @property
    def device_name(self) -> str:
        return (<gf_device *><char *>self._device).name.decode(errors="replace")

    @property
    def device_uuid(self) -> bytes:
        return (<char *>(<gf_device *><char *>self._device).uuid)[:16]

    @property
    def device_memory(self) -> int:
        return (<gf_device *><char *>self._device).total_memory

    @property
    def window(self) -> tuple[int, int]:
        return self.s.window, self.s.window_size

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
        header.size = sizeof(gf_header) + sizeof(gf_welcome) + sizeof(gf_device)
        header.op = GF_OP_WELCOME
        memcpy(welcome.proof, <char *>proof, sizeof(welcome.proof))
        welcome.session = session
        welcome.window_base = self.s.window
        welcome.window_size = self.s.window_size
        welcome.quota = quota
        welcome.granularity = PAGE
        welcome.driver_version = self.driver_version
        welcome.device_count = 1
        welcome.resume_ms = resume_ms
        welcome.image_kinds = GF_IMAGE_PTX | (0 if is_simulated() else GF_IMAGE_SASS)
        return (<char *>&header)[:sizeof(header)] + (<char *>&welcome)[:sizeof(welcome)] + self._device

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

    def begin(self, int fd, uint64_t quota, bint resumable) -> None:
        """Prepares for a session on a connected socket: statistics and end() refer to it from here on."""
        begin_session(self.s, fd, quota, resumable)

    def serve(self) -> str:
        """Serves the session until it ends; returns why. Blocks, without the GIL."""
        with nogil:
            run_session(self.s)
        return self.s.reason.decode(errors="replace")

    def resume(self, int fd, proof: bytes, uint64_t received) -> bool:
        """Goes on with another connection in place of the first, whose number it takes; False: refused."""
        cdef const uint8_t *data = proof
        cdef bint fine
        if len(proof) != GF_HASH_SIZE:
            raise ValueError("a proof has 32 bytes")
        with nogil:
            fine = resume_session(self.s, fd, data, received)
        return fine

    def end(self, reason: str) -> None:
        """Ends the session from another thread."""
        cdef bytes text = reason.encode()[:REASON_SIZE - 1]
        end_session(self.s, text)
        if not self.s.left:
            shutdown(self.s.fd, SHUT_RD)

    def forward_output(self) -> None:
        """Sends what kernels printed, for a guest that asks nothing."""
        with nogil:
            pthread_mutex_lock(&self.s.send_lock)
            forward_output(self.s)
            pthread_mutex_unlock(&self.s.send_lock)

    @property
    def waiting(self) -> bool:
        """Whether the guest waits for the device."""
        return self.s.tasks > 0

    @property
    def bell(self) -> int:
        """An eventfd that rings when a kernel is launched in a session that was left to itself."""
        return self.s.bell

    def rest(self) -> None:
        """The session is left to itself until its next launch."""
        self.s.resting = True

    def scrub(self) -> bool:
        """Removes everything the session made; False: it could not be proved, this process must go."""
        cdef int status
        with nogil:
            status = scrub(self.s)
        return status == cu.CUDA_SUCCESS

    def stats(self) -> dict[str, int]:
        """Counters of the session under way, or of the last one."""
        cdef Stats *stats = &self.s.stats
        return {
            "memory_mapped": self.s.mapped_bytes,
            "memory_quota": self.s.quota,
            "calls_async": stats.calls_async,
            "calls_sync": stats.calls_sync,
            "bytes_in": stats.bytes_in,
            "bytes_out": stats.bytes_out,
            "launches": stats.launches,
            "busy_nanoseconds": stats.busy_nanoseconds,
        }

    def calls(self) -> list[tuple[int, int, int, int, int]]:
        """Of every operation that was called: its id, calls that succeeded and failed, calls timed and their nanoseconds."""
        cdef Stats *stats = &self.s.stats
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
        cdef Stats *stats = &self.s.stats
        return [(GF_FUNCTION_FIRST + i, stats.unsupported[i])
                for i in range(GF_FUNCTION_LAST - GF_FUNCTION_FIRST + 1) if stats.unsupported[i] > 0]

    # What follows is for a thread that moves the session; the dispatcher runs on its own (core/hold.pxi).

    cdef int _look(self, bint still) except -1:
        """Takes the lock that keeps the session from ending meanwhile."""
        with nogil:
            pthread_mutex_lock(&self.s.move_lock)
        if not self.s.serving or (still and not self.s.held):
            over = not self.s.serving
            pthread_mutex_unlock(&self.s.move_lock)
            raise SessionOver("the session is over") if over else ValueError("the session is not held")
        return 0

    cdef int _looked(self) except -1:
        pthread_mutex_unlock(&self.s.move_lock)
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
        self._look(True)
        with nogil:
            status = drain_session(self.s, patience)
        self._looked()
        if status == cu.CUDA_ERROR_NOT_READY:
            return f"the device is still at work after {seconds:g} s"
        if status != cu.CUDA_SUCCESS:
            cu.cuGetErrorName(<cu.CUresult>status, &name)
            return f"the device has failed: {name.decode() if name != NULL else status}"
        return ""

    def snapshot(self, double patience = 10.0) -> list[tuple[bytes, int]]:
        """The frames, with digests of their answers, that make what the session has now; the tail begins."""
        cdef vector[uint8_t] out
        mine = not self.s.held
        if mine and not self.hold(patience):
            self._look(False)
            self._looked()
            raise TimeoutError(f"the session came to no end of a call in {patience:g} s")
        try:
            self._look(True)
            with nogil:
                write_journal(self.s, &out)
            lost = self.s.unkept
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
        lost = self.s.tail_lost or self.s.unkept
        self._looked()
        if lost:
            raise MemoryError("the session changes too fast")
        return _kept(&out)

    def forget_tail(self) -> None:
        """Nobody moves the session (any more)."""
        end_tail(self.s)

    def unread(self) -> bytes:
        """What the guest has sent and was not looked at."""
        self._look(True)
        data = (<char *>self.s.buffer + self.s.begin)[:self.s.end - self.s.begin]
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

    def images(self) -> list[tuple[bytes, bytes]]:
        """Hash and bytes of every image that something of the session was loaded from."""
        cdef vector[PBytes] found
        cdef bint complete
        cdef Bytes *image
        images = []
        self._look(False)
        complete = loaded_images(self.s, &found)
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
    def broken(self) -> bool:
        """Whether the context is lost, as far as known."""
        return self.s.broken

    @property
    def device(self) -> bytes:
        """struct gf_device"""
        return self._device


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
