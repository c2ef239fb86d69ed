"""Handshakes by Python's ssl, without I/O, and the secrets that they agree on."""

from __future__ import annotations

import contextlib
import functools
import os
import ssl

from ._records import SUITES, Records

LABELS = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0")
HANDSHAKE_RECORD = 22  # the first byte of whoever begins with TLS
RECORD_HEADER = 5  # bytes, the last two of them the length of what follows
CLEAR_MOST = 8 << 10  # bytes of what is not encrypted; the longest that are known have 2 KiB
RANDOM = slice(11, 43)  # of ClientHello: behind the headers of record and message, and the version


class ClearRecords:
    """Bounds what a client says before it is encrypted: its ClientHello, or two.

    OpenSSL looks each key in it up in a list that is in it too: 64 KiB took it 60 ms, of whoever sent them
    nothing.
    """

    def __init__(self) -> None:
        self._head = b""  # of a record whose header is not all there
        self._left = 0  # bytes of a record whose header is
        self._clear = 0  # bytes in records of handshakes

    def add(self, came: bytes) -> None:
        """More came. Raises ssl.SSLError if it is more than any client says."""
        at = 0
        while at < len(came):
            if self._left:
                skipped = min(self._left, len(came) - at)
                self._left, at = self._left - skipped, at + skipped
                continue
            taken = came[at : at + RECORD_HEADER - len(self._head)]
            self._head, at = self._head + taken, at + len(taken)
            if len(self._head) == RECORD_HEADER:
                self._left = int.from_bytes(self._head[3:], "big")
                self._clear += RECORD_HEADER + self._left if self._head[0] == HANDSHAKE_RECORD else 0
                self._head = b""
        if self._clear > CLEAR_MOST:
            raise ssl.SSLError("its ClientHello is longer than any")


class _Keylog:
    """Where OpenSSL says which secrets a handshake agreed on: Python's ssl can name it a file and nothing
    else, so it is one in memory, which is emptied after each step.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("tls-keylog", os.MFD_CLOEXEC)
        self._path = f"/proc/self/fd/{self._file}"

    def attach(self, context: ssl.SSLContext) -> None:
        if context.keylog_filename != self._path:
            context.keylog_filename = self._path

    def take(self, client_random: bytes) -> dict[str, bytes]:
        """The secrets of this handshake, by their labels. Others may share its context: theirs go."""
        size = os.fstat(self._file).st_size
        if not size:
            return {}
        lines = os.pread(self._file, size, 0).decode().splitlines()
        os.ftruncate(self._file, 0)
        words = [line.split(" ") for line in lines]
        ours = client_random.hex()
        return {word[0]: bytes.fromhex(word[2]) for word in words if word[0] in LABELS and word[1] == ours}


@functools.cache
def _keylog() -> _Keylog:
    return _Keylog()


class Shake:
    """One side of a handshake of TLS 1.3. To be stepped by one thread at a time of the process."""

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """As a server; with the name that a server must have a certificate for, as its client."""
        _keylog().attach(context)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_name is None
        self._session = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=server_name)
        self._server = server
        self._clear = ClearRecords()
        self._hello = b""  # the beginning of ClientHello
        self._secrets: dict[str, bytes] = {}
        self._last_word = b""
        self.done = False

    def step(self, came: bytes) -> bytes:
        """Take what came from the other side, and return what to send. Sets `done`. Raises ssl.SSLError,
        after which `last_word` is to be sent.
        """
        if self._server:
            self._clear.add(came)
        self._in.write(came)
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._session.do_handshake()
                self.done = True
        finally:
            answer = self._out.read()
            if len(self._hello) < RANDOM.stop:
                self._hello += (came if self._server else answer)[: RANDOM.stop]
            self._secrets |= _keylog().take(self._hello[RANDOM])
            self._last_word = answer
        if self.done:
            self._check()
        return answer

    def _check(self) -> None:
        if len(self._secrets) < len(LABELS):
            raise ssl.SSLError("its ClientHello is not as it is usually said")
        if (suite := self._suite()) not in SUITES:  # Python's ssl cannot be told which to agree on
            raise ssl.SSLError(f"the cipher suite {suite} is not spoken here")

    def _suite(self) -> str:
        cipher = self._session.cipher()
        assert cipher
        return cipher[0]

    def last_word(self) -> bytes:
        """The alert that tells the other side why there is no connection."""
        return self._last_word

    def records(self) -> Records:
        """Return the encrypted connection. Only once `done`."""
        client, server = (self._secrets[label] for label in LABELS)
        ours, theirs = (server, client) if self._server else (client, server)
        return Records.begin(self._suite(), ours, theirs, self._in.read())
