"""Descriptors that come over Unix sockets."""

from __future__ import annotations

import array
import socket

_EACH = array.array("i").itemsize


def receive(end: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive a packet of at most `size` bytes, and at most `most` descriptors beside it. Raises OSError.

    No child that is started meanwhile gets one of them, as it would from `socket.recv_fds`, which ignores
    its flags in Python 3.11.
    """
    packet, beside, _, _ = end.recvmsg(size, socket.CMSG_LEN(most * _EACH), socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % _EACH])
    return packet, list(found)
