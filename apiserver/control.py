"""The control channel of an API server or a keeper to its monitor, and to the next monitor if that one is
gone: it comes to a socket that was given with the Home.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Sequence

from gpuferry.native.descriptors import receive
from gpuferry.specs._generated import node_pb2

from . import orders

POLL_MOST = 1e9  # milliseconds, that poll takes; then one looks again
PACKET = 256 << 10  # what TLS holds of a connection is in it, as much as its guest has sent ahead
DESCRIPTORS = 64  # beside one message, at most
KEPT = ("grant", "keep", "migrate", "play")  # orders that the next monitor is shown,
BEGIN = ("grant", "keep")  # and of these the last one makes those before it void
TO_BE_TOLD = ("ended", "ready", "moved", "taken_over")  # also to the next monitor
PR_SET_PDEATHSIG = 1


class Control:
    """Messages to and from the monitor, one per packet (node.proto). A monitor that is gone may be
    followed by another.
    """

    def __init__(self, fd: int, obeys: frozenset[str]) -> None:
        """`obeys`: the kinds of orders that are for this process."""
        self._obeys = obeys
        self._socket = socket.socket(fileno=fd)
        self._home: node_pb2.Home | None = None
        self._unsent: list[node_pb2.FromServer] = []  # for the next monitor
        self._door: socket.socket | None = None  # where the next monitor comes
        self._orders: dict[str, bytes] = {}  # as they came
        self.lost_at: float | None = None
        self._alone_since: float | None = None  # a monitor that turns us away is none

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def door(self) -> socket.socket:
        """The socket where the next monitor comes."""
        assert self._door
        return self._door

    def settle(self, home: node_pb2.Home, door: socket.socket | None) -> None:
        """Accept a Home: from here on this process outlives its monitor. `door`: where another one comes;
        None: where it was told before.
        """
        self._home = home
        if door is not None:
            self._door = door
            door.setblocking(False)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)

    def send(self, message: node_pb2.FromServer, descriptors: Sequence[int] = ()) -> None:
        """Send a message. With no monitor, what the next one must know is kept for it; the rest is
        dropped.
        """
        if self.lost_at is None:
            try:
                socket.send_fds(self._socket, [message.SerializeToString()], list(descriptors))
                return
            except OSError:
                self._lose()
        if message.WhichOneof("message") in TO_BE_TOLD:
            self._unsent.append(message)

    def receive(self) -> tuple[node_pb2.ToServer | None, list[int]]:
        """The next message and the descriptors beside it. None for the message if the monitor is gone;
        without a Home that ends the process. Raises Unsound.
        """
        try:
            data, descriptors = receive(self._socket, PACKET, DESCRIPTORS)
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            self._lose()
            return None, descriptors
        self._alone_since = None
        message = orders.read(data, descriptors)
        kind = message.WhichOneof("message")
        if kind not in self._obeys:
            for each in descriptors:
                os.close(each)
            return node_pb2.ToServer(), []
        if kind in KEPT:
            if kind in BEGIN:
                self._orders.clear()
            self._orders[kind] = data
        return message, descriptors

    def _lose(self) -> None:
        if self._home is None:
            os._exit(0)  # no monitor, no reason to be
        if self.lost_at is None:
            self.lost_at = time.monotonic()
            self._alone_since = self._alone_since or self.lost_at

    @property
    def patience(self) -> float:
        """Seconds until nobody has come within the grace; 0 at least."""
        assert self._home
        since = time.monotonic() if self._alone_since is None else self._alone_since
        return max(0.0, since + self._home.grace_seconds - time.monotonic())

    def forsaken(self) -> bool:
        """Whether no monitor came within the grace that the Home gives."""
        assert self._home
        return (
            self._alone_since is not None and time.monotonic() > self._alone_since + self._home.grace_seconds
        )

    def look_for_monitor(
        self, returned: node_pb2.Returned, files: Callable[[], Sequence[int]] = tuple
    ) -> bool:
        """If another monitor has come, tell it `returned`, with the orders that prove it, and what was kept
        for it. Returns whether there is one. `files`: what goes beside it, and is closed here.
        """
        # What happened before the last session is no news.
        news = self._unsent if returned.HasField("grant") else []
        try:
            found, _ = self.door.accept()
        except OSError:
            return False
        found.settimeout(1.0)
        returned.orders.extend(self._orders.values())
        beside = files()
        try:
            first = node_pb2.FromServer(returned=returned)
            socket.send_fds(found, [first.SerializeToString()], list(beside))
            for message in news:
                found.send(message.SerializeToString())
        except OSError:
            found.close()
            return False
        finally:
            for each in beside:
                os.close(each)
        found.settimeout(None)
        self._unsent.clear()
        self._socket.close()
        self._socket = found
        self.lost_at = None
        return True
