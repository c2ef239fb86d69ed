# For a thread that moves the session (moving.py); the dispatcher runs on its own (core/hold.pxi).

cdef class Stillness(Service):
    """How the session stands still, and what it is then, but for its memory."""

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
