# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The session engine: from the guest's socket to the driver and back, without the GIL. DESIGN.md explains it."""

include "core/declarations.pxi"
include "_generated/messages.pxi"
include "core/types.pxi"
include "core/state.pxi"
include "core/handles.pxi"
include "core/send.pxi"
include "core/replay.pxi"
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
    """A driver call failed while a server started."""


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
        pthread_mutex_init(&s.lock, NULL)
        pthread_mutex_init(&s.send_lock, NULL)
        pthread_cond_init(&s.changed, NULL)
        pthread_cond_init(&s.work, NULL)
        pthread_cond_init(&s.sendable, NULL)
        pthread_cond_init(&s.drained, NULL)
        register_all()
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
