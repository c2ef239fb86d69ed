"""The control channel of an API server or a keeper to its monitor, and to the next monitor if that one is
gone.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time

from gpuferry.specs._generated import node_pb2

PACKET = 64 << 10
DESCRIPTORS = 2  # beside one message, at most
RETRY_SECONDS = 0.05  # between looks for a new monitor
TO_BE_TOLD = ("ended", "ready", "moved", "taken_over")  # also to the next monitor
PEER = struct.Struct("3i")  # struct ucred
PR_SET_PDEATHSIG = 1


class Control:
    """Messages to and from the monitor, one per packet (node.proto). A monitor that is gone may be
    followed by another.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._home: node_pb2.Home | None = None
        self._unsent: list[node_pb2.FromServer] = []  # for the next monitor
        self._retry = 0.0
        self.lost_at: float | None = None
        self._alone_since: float | None = None  # a monitor that turns us away is none

    def fileno(self) -> int:
        return self._socket.fileno()

    def settle(self, home: node_pb2.Home) -> None:
        """Accept a Home: from here on this process outlives its monitor, and looks for another one there."""
        self._home = home
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)

    def send(self, message: node_pb2.FromServer) -> None:
        """Send a message. With no monitor, what the next one must know is kept for it; the rest is
        dropped.
        """
        if self.lost_at is None:
            try:
                self._socket.send(message.SerializeToString())
                return
            except OSError:
                self._lose()
        if message.WhichOneof("message") in TO_BE_TOLD:
            self._unsent.append(message)

    def receive(self) -> tuple[node_pb2.ToServer | None, list[socket.socket]]:
        """The next message and the sockets beside it. None for the message if the monitor is gone; without
        a Home that ends the process.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, PACKET, DESCRIPTORS)
        except ConnectionResetError:
            data, descriptors = b"", []
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not data:
            self._lose()
            return None, sockets
        self._alone_since = None
        return node_pb2.ToServer.FromString(data), sockets

    def _lose(self) -> None:
        if self._home is None:
            os._exit(0)  # no monitor, no reason to be
        if self.lost_at is None:
            self.lost_at = time.monotonic()
            self._alone_since = self._alone_since or self.lost_at

    def forsaken(self) -> bool:
        """Whether no monitor came within the grace that the Home gives."""
        assert self._home
        return (
            self._alone_since is not None and time.monotonic() > self._alone_since + self._home.grace_seconds
        )

    def look_for_monitor(self, returned: node_pb2.Returned) -> bool:
        """Look for another monitor at home, at most every 50 ms. If there is one, tell it `returned` and
        what was kept for it. Returns whether there is.
        """
        assert self._home
        if time.monotonic() < self._retry:
            return False
        self._retry = time.monotonic() + RETRY_SECONDS
        # What happened before the last session is no news.
        news = self._unsent if returned.HasField("grant") else []
        found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found.settimeout(1.0)
        try:
            found.connect(self._home.path)
            _, uid, _ = PEER.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            if uid != os.getuid():
                raise PermissionError
            returned.secret = self._home.secret
            for message in (node_pb2.FromServer(returned=returned), *news):
                found.send(message.SerializeToString())
        except OSError:
            found.close()
            return False
        found.settimeout(None)
        self._unsent.clear()
        self._socket.close()
        self._socket = found
        self.lost_at = None
        return True
