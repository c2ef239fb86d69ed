"""The beginning of a snapshot file: what it is, and what the monitor has sealed (seal.py) in it."""

from __future__ import annotations

import struct

from .errors import SnapshotError
from .place import ExistingFile

MAGIC = b"GPUFERRY SNAPSHOT\0"
VERSION = 2
FIXED = struct.Struct("<18sHI16s32s")  # magic, version, bytes of what is sealed, id of the secret, salt
SEALED_LEAST, SEALED_MOST = 16, 4096
KEY = 32
PREFIX = 7  # of a chunk's nonce


class Unencrypted(SnapshotError):
    """A file of release 0.1: nobody can tell who wrote it, or changed it since."""


def read_head(file: ExistingFile) -> bytes:
    """The head of a file, as it is: nothing of it is known to be true. Raises Unencrypted for a file of
    release 0.1, and SnapshotError.
    """
    start = file.read(FIXED.size, 0)
    if not start.startswith(MAGIC):
        raise SnapshotError(f"{file.name} is no snapshot of a session")
    if len(start) < FIXED.size:
        raise damaged(file.name, "it is cut short")
    version, size = FIXED.unpack(start)[1:3]
    if version == 1:
        raise Unencrypted(
            f"{file.name} is a file of gpuferry 0.1, which did not encrypt: whoever could write it could "
            "change the session in it. If you trust it: --allow-unencrypted"
        )
    if version != VERSION:
        raise SnapshotError(f"{file.name} has format version {version}; this gpuferry reads {VERSION}")
    if not SEALED_LEAST <= size <= SEALED_MOST:
        raise damaged(file.name, "its head is not what was written")
    head = start + file.read(size, FIXED.size)
    if len(head) < FIXED.size + size:
        raise damaged(file.name, "it is cut short")
    return head


def damaged(name: str, what: str) -> SnapshotError:
    """The error for a file that is not what was written."""
    return SnapshotError(
        f"{name} is damaged or forged: {what}. Nothing of it was used: bring back the file that was written"
    )
