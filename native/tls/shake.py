"""Handshakes by Python's ssl, without I/O, and the secrets that they agree on."""

from __future__ import annotations

import contextlib
import functools
import os
import ssl

from ._records import Records

KEYLOG_MOST = 64 << 10
OUR_LABELS = {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"}
HANDSHAKE_RECORD = 22  # the first byte of whoever begins with TLS


class _Keylog:
    """Where OpenSSL says which secrets a handshake agreed on: Python's ssl can name it a file and nothing
    else, so it is a pipe, which is emptied after each step.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._path = f"/proc/self/fd/{self._writing}"

    def attach(self, context: ssl.SSLContext) -> None:
        if context.keylog_filename != self._path:
            context.keylog_filename = self._path

    def read(self) -> dict[str, bytes]:
        """The secrets of the handshake that was stepped since this was last called, by their labels."""
        with contextlib.suppress(BlockingIOError):
            lines = os.read(self._reading, KEYLOG_MOST).decode().splitlines()
            words = [line.split(" ") for line in lines]
            return {word[0]: bytes.fromhex(word[2]) for word in words if word[0] in OUR_LABELS}
        return {}


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
        self._secrets: dict[str, bytes] = {}
        self.done = False

    def step(self, came: bytes) -> bytes:
        """Take what came from the other side, and return what to send. Sets `done`. Raises ssl.SSLError,
        after which `last_word` is to be sent.
        """
        self._in.write(came)
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._session.do_handshake()
                self.done = True
        finally:
            self._secrets.update(_keylog().read())
        return self._out.read()

    def last_word(self) -> bytes:
        """The alert that tells the other side why there is no connection."""
        return self._out.read()

    def records(self) -> Records:
        """The connection, once `done`."""
        cipher = self._session.cipher()
        assert cipher
        client, server = (self._secrets[f"{side}_TRAFFIC_SECRET_0"] for side in ("CLIENT", "SERVER"))
        ours, theirs = (server, client) if self._server else (client, server)
        return Records.begin(cipher[0], ours, theirs, self._in.read())
