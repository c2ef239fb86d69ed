"""The control channel to one API server: one message of node.proto per SEQPACKET packet."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

from google.protobuf.message import DecodeError
from gpuferry.native.tls.stream import Connection, state_of
from gpuferry.specs._generated import node_pb2

PACKET_MAX = 64 * 1024
BACKLOG = 512
PEER = struct.Struct("3i")  # struct ucred


class ChannelBroken(Exception):
    """The API server is gone, or does not speak the protocol."""


class Channel:
    """The monitor's end of a control channel."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end

    def send(self, message: node_pb2.ToServer, *descriptors: Connection) -> None:
        """Send at once, and what TLS needs on the first descriptor. Raises ChannelBroken if the API server is
        gone, or its buffer is full.
        """
        try:
            numbers = [descriptor.fileno() for descriptor in descriptors]
            if descriptors and (state := state_of(descriptors[0])):
                message.tls = state
            socket.send_fds(self._socket, [message.SerializeToString()], numbers)
        except OSError as error:
            raise ChannelBroken(str(error)) from None

    async def receive(self) -> node_pb2.FromServer | None:
        """Wait for the next message; None when the API server closed its end. Raises ChannelBroken."""
        try:
            packet = await asyncio.get_running_loop().sock_recv(self._socket, PACKET_MAX)
        except OSError:
            return None
        if not packet:
            return None
        try:
            return node_pb2.FromServer.FromString(packet)
        except DecodeError as error:
            raise ChannelBroken(f"unreadable message: {error}") from None

    def close(self) -> None:
        """Close the channel, which tells the API server to end."""
        self._socket.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """A new channel's two ends: the monitor's, and the one that the API server inherits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), theirs


def listen(path: Path) -> socket.socket:
    """A socket where API servers of an earlier monitor come. What that monitor left there is removed."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def peer(end: socket.socket) -> tuple[int, int]:
    """Process id and user id of whoever is at the other end."""
    pid, user, _ = PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return int(pid), int(user)
