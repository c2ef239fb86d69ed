"""Encrypted chunks of a file, in the STREAM construction: nothing can be changed, moved, cut off or added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from .errors import SnapshotError
from .head import KEY, PREFIX, damaged
from .place import ExistingFile, GivenFile, NewFile

CHUNK = 256 << 10
TAG = 16


class _Cipher:
    """One chunk's nonce is the key's prefix, the chunk's number, and whether it is the last one."""

    def __init__(self, key: bytes, head: bytes) -> None:
        # Imported by whoever writes or reads: a keeper that waits shall be small.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) != KEY + PREFIX:
            raise SnapshotError(f"a key of {len(key)} bytes came with the order: update the monitor")
        self.wrong = InvalidTag
        self._cipher = AESGCM(key[:KEY])
        self._prefix = key[KEY:]
        self._head = hashlib.sha256(head).digest()

    def _nonce(self, number: int, last: bool) -> bytes:
        return self._prefix + number.to_bytes(4, "big") + bytes([last])

    def encrypt(self, data: bytes | bytearray | memoryview, number: int, last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(number, last), data, self._head)

    def decrypt(self, data: bytes, number: int, last: bool) -> bytes:
        """Raises `wrong` if it is not what was encrypted."""
        return self._cipher.decrypt(self._nonce(number, last), data, self._head)


class Sealer:
    """Writes head and contents into a new file."""

    def __init__(self, file: NewFile | GivenFile, head: bytes, key: bytes) -> None:
        self._file = file
        self._cipher = _Cipher(key, head)
        self._number = 0
        self._waiting = bytearray()
        file.write(head)

    def write(self, data: bytes | memoryview) -> None:
        """Append to the contents; whole chunks are sealed and written at once."""
        self._waiting += data
        while len(self._waiting) > CHUNK:  # what is left may be the last chunk
            self._put(memoryview(self._waiting)[:CHUNK], False)
            del self._waiting[:CHUNK]

    def finish(self) -> None:
        """Write the last chunk: a file without it is refused."""
        self._put(memoryview(self._waiting), True)
        self._waiting = bytearray()

    def _put(self, data: memoryview, last: bool) -> None:
        with data:
            self._file.write(self._cipher.encrypt(data, self._number, last))
        self._number += 1


class Opener:
    """The contents of a file behind its head. Raises SnapshotError where they are not what was written."""

    def __init__(self, file: ExistingFile, head: bytes, key: bytes) -> None:
        self._file = file
        self._begin = len(head)
        self._cipher = _Cipher(key, head)

    def chunks(self) -> Iterator[bytes]:
        """All of it, chunk by chunk; each is checked before it is given out."""
        end, at, number = self._file.size, self._begin, 0
        while True:
            last = end - at <= CHUNK + TAG
            data = self._file.read(min(end - at, CHUNK + TAG), at)
            try:
                plain = self._cipher.decrypt(data, number, last)
            except self._cipher.wrong:
                raise damaged(self._file.name, f"what stands at byte {at} is not what was written") from None
            yield plain
            if last:
                return
            at, number = at + len(data), number + 1
