# records.h for Python: whoever has a socket and no engine (the monitor's door, a keeper, the link of a move).

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.uio cimport iovec

import errno as codes
import os

cdef extern from "tls/records.h" nogil:
    enum:
        GF_TLS_SECRET_MAX
        GF_TLS_STATE_MAX
    struct gf_tls:
        pass
    gf_tls *gf_tls_begin(uint16_t suite, const uint8_t *out_secret, const uint8_t *in_secret, const void *early,
                         size_t early_size, char *why, size_t why_size)
    void gf_tls_end(gf_tls *tls)
    size_t gf_tls_save(const gf_tls *tls, void *state)
    gf_tls *gf_tls_restore(const void *state, size_t size, char *why, size_t why_size)
    ssize_t gf_tls_receive(gf_tls *tls, int fd, void *data, size_t size, int flags)
    bint gf_tls_has_input(const gf_tls *tls)
    ssize_t gf_tls_send(gf_tls *tls, int fd, const iovec *parts, int count, int flags)
    int gf_tls_flush(gf_tls *tls, int fd, int flags)
    bint gf_tls_has_output(const gf_tls *tls)
    void gf_tls_update_after(gf_tls *tls, uint64_t records)


SUITES = {"TLS_AES_128_GCM_SHA256": (0x1301, 32), "TLS_AES_256_GCM_SHA384": (0x1302, 48)}


class NoTls(RuntimeError):
    """TLS cannot go on here: no OpenSSL, another cipher suite, a state of another version."""


cdef int _fail() except -1:
    cdef int error = errno
    if error == codes.EBADMSG:
        raise ConnectionAbortedError(error, "what came is no authentic record of TLS")
    raise OSError(error, os.strerror(error))


cdef class Records:
    """The records of TLS on a socket whose handshake is over. Raises as a socket does; ConnectionAbortedError where
    what came is not authentic."""

    cdef gf_tls *_tls

    def __dealloc__(self):
        gf_tls_end(self._tls)

    @staticmethod
    def begin(str suite, bytes out_secret, bytes in_secret, bytes early=b"") -> Records:
        """With the secrets of this cipher suite; `early` is what came from the socket behind the handshake."""
        cdef char why[256]
        cdef Records made = Records.__new__(Records)
        if suite not in SUITES:
            raise NoTls(f"the cipher suite {suite} is not spoken here")
        number, size = SUITES[suite]
        if len(out_secret) != size or len(in_secret) != size:
            raise ValueError("a secret of another length")
        why[0] = 0
        made._tls = gf_tls_begin(number, out_secret, in_secret, PyBytes_AS_STRING(early), len(early), why, sizeof(why))
        if made._tls == NULL:
            raise NoTls((<bytes>why).decode(errors="replace"))
        return made

    @staticmethod
    def restore(bytes state) -> Records:
        """What `save` gave, perhaps in another process."""
        cdef char why[256]
        cdef Records made = Records.__new__(Records)
        why[0] = 0
        made._tls = gf_tls_restore(PyBytes_AS_STRING(state), len(state), why, sizeof(why))
        if made._tls == NULL:
            raise NoTls((<bytes>why).decode(errors="replace"))
        return made

    def save(self) -> bytes:
        """All that another process needs to go on; nothing may be sent or received here afterwards."""
        cdef void *state = malloc(GF_TLS_STATE_MAX)
        try:
            return PyBytes_FromStringAndSize(<char *>state, gf_tls_save(self._tls, state))
        finally:
            free(state)

    def receive_into(self, int fd, uint8_t[::1] target not None, int flags=0) -> int:
        """As socket.recv_into."""
        cdef ssize_t n
        cdef size_t size = target.shape[0]
        if size == 0:
            return 0
        with nogil:
            n = gf_tls_receive(self._tls, fd, &target[0], size, flags)
        if n < 0:
            _fail()
        return n

    def receive(self, int fd, size_t size, int flags=0) -> bytes:
        """As socket.recv."""
        target = bytearray(size)
        return bytes(target[: self.receive_into(fd, target, flags)])

    @property
    def has_input(self) -> bool:
        """Whether something can be received without the socket."""
        return gf_tls_has_input(self._tls)

    def send(self, int fd, const uint8_t[::1] data not None, int flags=0) -> int:
        """As socket.send; what was taken may be here until it is flushed."""
        cdef iovec part
        cdef ssize_t n
        if data.shape[0] == 0:
            return 0
        part.iov_base = <void *>&data[0]
        part.iov_len = data.shape[0]
        with nogil:
            n = gf_tls_send(self._tls, fd, &part, 1, flags)
        if n < 0:
            _fail()
        return n

    def flush(self, int fd, int flags=0) -> bool:
        """Whether all that was taken is with the socket."""
        cdef int done
        with nogil:
            done = gf_tls_flush(self._tls, fd, flags)
        if done < 0:
            _fail()
        return done == 1

    @property
    def has_output(self) -> bool:
        """Whether something was taken that the socket does not have."""
        return gf_tls_has_output(self._tls)

    def update_after(self, uint64_t records) -> None:
        """Take the next key after so many records."""
        gf_tls_update_after(self._tls, records)
