"""The control channel to one API server: one message of node.proto per SEQPACKET packet."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from gpuferry.native.descriptors import receive
from gpuferry.native.tls.stream import state_of
from gpuferry.specs._generated import node_pb2

PACKET_MAX = 64 * 1024
RETURNED_MAX = 512 * 1024  # of Returned, with orders in which is what TLS holds of a connection
BACKLOG = 4
DESCRIPTORS = 64  # beside one message, at most
# Messages with figures of a session, or texts, which people read.
TOLD = frozenset(("stats", "ended", "moving", "moved", "resides", "failed"))
TEXT_MOST = 1000  # characters
COUNT_MOST = 1 << 53  # of bytes or calls: a session gets nowhere near, and sums of a thousand fit 64 bits
SECONDS_MOST = 1e10
BELOW_0 = ("turn_ago",)  # seconds that say by their sign that there are none
_NO_LINGER = struct.pack("ii", 0, 0)
SEALED = ("grant", "keep", "migrate", "play")  # what an API server has, and another monitor must be told

NUMBERS = frozenset(
    (
        FieldDescriptor.CPPTYPE_DOUBLE,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    )
)


class ChannelBroken(Exception):
    """The API server is gone, or does not speak the protocol."""


def read_message(packet: bytes) -> node_pb2.FromServer:
    """The message in a packet, its texts without what would steer a terminal. Raises ChannelBroken, also for
    what nobody could count or name: seconds that are no number would be in all sums from then on, and so
    would a count that no session reaches.
    """
    try:
        message = node_pb2.FromServer.FromString(packet)
    except DecodeError as error:
        raise ChannelBroken(f"unreadable message: {error}") from None
    kind = message.WhichOneof("message")
    if kind in TOLD:
        _check(getattr(message, kind))
    elif kind == "returned":
        _check(message.returned.resides)
        _check_number("session_seconds", message.returned.session_seconds)
    return message


def _check(said: Message) -> None:
    """Each number and each word of what an API server says of its session."""
    for field, value in said.ListFields():
        values = value if field.is_repeated else (value,)
        if field.message_type:
            for each in values:
                _check(each)
        elif field.enum_type:
            for each in values:
                if each not in field.enum_type.values_by_number:
                    raise ChannelBroken(f"{field.name}: there is no {field.enum_type.name} {each}")
        elif field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            setattr(said, field.name, shown(value))
        elif field.cpp_type in NUMBERS:
            for each in values:
                _check_number(field.name, each)


def shown(text: str) -> str:
    """What others say, without what would steer a terminal, and no longer than anybody reads."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:TEXT_MOST])


def _check_number(name: str, value: float) -> None:
    least = -math.inf if name in BELOW_0 else 0
    if isinstance(value, float) and not least <= value <= SECONDS_MOST:
        raise ChannelBroken(f"{name}: {value} seconds")
    if not value <= COUNT_MOST:
        raise ChannelBroken(f"{name}: {value}, which nobody reaches")


class HasFileno(Protocol):
    """A socket or a file, whose descriptor can be given away."""

    def fileno(self) -> int:
        """The number of its descriptor."""


class Descriptor:
    """An open file that somebody sent."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """The number of the descriptor in this process."""
        return self._number

    def close(self) -> None:
        """Close the descriptor, without waiting for what a socket may have to send yet."""
        try:
            end = socket.socket(fileno=self._number)
        except OSError:  # it is none
            os.close(self._number)
            return
        with end, contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


class Channel:
    """The monitor's end of a control channel."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._waiter: asyncio.Future[None] | None = None  # for the next message
        self._reader: asyncio.AbstractEventLoop | None = None  # that looks whether one is there
        self.beside: list[Descriptor] = []  # what came with the last message
        self.seal: Callable[[bytes], bytes] | None = None  # of what the next monitor shall believe

    def send(self, message: node_pb2.ToServer, *descriptors: HasFileno) -> None:
        """Send at once, and what TLS needs on the first descriptor. Raises ChannelBroken if the API server is
        gone, or its buffer is full.
        """
        if descriptors and (state := state_of(descriptors[0])):
            message.tls = state
        packet = message.SerializeToString()
        if self.seal and message.WhichOneof("message") in SEALED:
            packet = self.seal(packet)
        try:
            numbers = [descriptor.fileno() for descriptor in descriptors]
            socket.send_fds(self._socket, [packet], numbers)
        except OSError as error:
            raise ChannelBroken(str(error)) from None

    async def receive(self, most: int = PACKET_MAX) -> node_pb2.FromServer | None:
        """Wait for the next message, of `most` bytes; None when the API server closed its end. What came
        beside the one before is closed. Raises ChannelBroken.

        One round of the event loop brings one message at most: who never stops talking keeps nobody waiting.
        """
        if self.beside:
            await _close_aside(self._take_beside())
        try:
            packet, descriptors = await self._packet(most)
        except OSError:
            return None
        self.beside = [Descriptor(number) for number in descriptors]
        if not packet:
            return None
        return read_message(packet)

    async def _packet(self, most: int) -> tuple[bytes, list[int]]:
        loop = asyncio.get_running_loop()
        while True:
            self._waiter = loop.create_future()
            if not self._reader:
                loop.add_reader(self._socket, self._wake)
                self._reader = loop
            try:
                await self._waiter
            finally:
                self._waiter = None
            try:
                return receive(self._socket, most, DESCRIPTORS)
            except BlockingIOError:
                continue

    def _wake(self) -> None:
        if self._waiter is None:  # nobody listens any more
            self._look_no_more()
        elif not self._waiter.done():
            self._waiter.set_result(None)

    def _look_no_more(self) -> None:
        if self._reader:
            self._reader.remove_reader(self._socket)
            self._reader = None

    def _take_beside(self) -> list[Descriptor]:
        beside, self.beside = self.beside, []
        return beside

    def close(self) -> None:
        """Close the channel soon, which tells the API server to end; and what came and was not read."""
        self._look_no_more()
        _close_aside([*self._take_beside(), self._socket])


def _close_aside(things: Iterable[Descriptor | socket.socket]) -> asyncio.Future[None]:
    """Close these on another thread, be somebody there to wait for it or not: each may be the last hold on
    gigabytes, and for each of memory that takes a tenth of a second.
    """

    def close() -> None:
        for thing in things:
            thing.close()

    return asyncio.shield(asyncio.get_running_loop().run_in_executor(None, close))


def channel_pair() -> tuple[Channel, socket.socket]:
    """A new channel's two ends: the monitor's, and the one that the API server inherits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), theirs


def listen(path: Path) -> socket.socket:
    """A socket that an API server is given, so that the next monitor can come to it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(BACKLOG)
    return listening


def visit(path: Path) -> Channel:
    """A channel to the API server that listens there. Raises OSError if none does."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        end.connect(str(path))
    except OSError:
        end.close()
        raise
    return Channel(end)
