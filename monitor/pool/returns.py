"""How API servers outlive their monitor: what is written down of each for the next one, which comes to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError
from gpuferry.specs._generated import node_pb2

from ..door.mac import mac
from ..service.processes import start_time
from .channel import RETURNED_MAX, Channel, ChannelBroken, listen, visit

FOLDER = "back"
LOOK_SECONDS = 0.5  # between looks whether a process that says nothing still lives
SILENT_SECONDS = 120.0  # for which one that lives may say nothing
NAME_BYTES = 3  # a Unix socket's path may have 107 characters

log = structlog.get_logger()


@dataclass
class Record:
    """What is written down of one API server. Nothing of it is the API server's own word but `ready`, which
    it gave before it had a guest.
    """

    name: str
    pid: int = 0
    began: int = 0  # its start time, so that a reused pid is somebody else
    group: int = 0  # the process group that ends with it
    uid: int = 0  # that it has in its jail; 0: none of its own
    cgroup: str = ""
    ready: str = ""  # in base64; empty: it never was
    session: int = 0  # whose copies are in these files on a disk
    files: dict[str, int] = field(default_factory=dict)  # bytes, by what CopyFile calls them

    @property
    def description(self) -> node_pb2.Ready | None:
        """The Ready that it said first, if it did."""
        return node_pb2.Ready.FromString(base64.b64decode(self.ready)) if self.ready else None


class Returns:
    """The folder in which each API server has a socket, where the next monitor finds it, and its record."""

    def __init__(self, runtime: Path, secret: bytes, grace: float) -> None:
        self._folder = runtime / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._secret = secret
        self.home = node_pb2.Home(grace_seconds=grace)
        self.all_back = asyncio.Event()  # each that is waited for has come back, or is gone

    def enter(self) -> tuple[str, socket.socket]:
        """A name for a new API server, and the socket that it is given."""
        while (path := self._folder / secrets.token_hex(NAME_BYTES)).exists():
            pass
        return path.name, listen(path)

    def note(self, record: Record) -> None:
        """Write down what is known of an API server now. Raises OSError; then what was written stays."""
        scratch = self._folder / f".{record.name}"
        with contextlib.suppress(FileExistsError):
            scratch.touch(0o600)
        try:
            scratch.write_text(json.dumps(asdict(record)))
            scratch.replace(self._folder / f"{record.name}.json")
        except OSError:
            scratch.unlink(missing_ok=True)
            raise

    def path(self, name: str) -> Path:
        """Return the path of the socket where this API server comes back."""
        return self._folder / name

    def forget(self, name: str) -> None:
        """Nobody shall look for this API server any more."""
        for path in (self._folder / name, self._folder / f"{name}.json"):
            path.unlink(missing_ok=True)

    def left(self) -> list[Record]:
        """What an earlier monitor wrote down. Sockets without a record are removed."""
        found = []
        known = {each.name for each in fields(Record)}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                content = json.loads(path.read_text())
                found.append(Record(**{name: value for name, value in content.items() if name in known}))
        for path in self._folder.iterdir():
            if path.name.removesuffix(".json") not in {record.name for record in found}:
                path.unlink()
        return found

    def seal(self, name: str, order: bytes) -> bytes:
        """The order to this API server, as the next monitor believes that it was given."""
        return order + node_pb2.ToServer(seal=self._proof(name, order)).SerializeToString()

    def _proof(self, name: str, order: bytes) -> bytes:
        return mac(self._secret, name.encode() + b"\0" + order)

    def check(self, name: str, returned: node_pb2.Returned) -> None:
        """Put what the API server's sealed orders say in the place of what it says itself. Raises
        ChannelBroken if it has none for what it says.
        """
        orders = [self._open(name, packet) for packet in returned.orders]
        grant = next((order.grant for order in orders if order.HasField("grant")), None)
        keep = next((order.keep for order in orders if order.HasField("keep")), None)
        move = next((order.migrate for order in orders if order.HasField("migrate")), None)
        play = next((order.play for order in orders if order.HasField("play")), None)
        if returned.HasField("grant"):
            proven = grant or (keep.grant if keep else None)
            if proven is None or proven.session != returned.grant.session:
                raise ChannelBroken(f"session {returned.grant.session} was never given to it")
            restore = returned.grant.restore and proven.restore
            returned.grant.CopyFrom(proven)
            returned.grant.restore = restore
        if returned.HasField("migrating"):
            # Out of its file to another GPU server, of which the keeper alone knows whether it came so far.
            played = play if play is not None and returned.migrating.HasField("remote") else None
            returned.migrating.Clear()
            if move is not None and move.session == returned.grant.session:
                returned.migrating.CopyFrom(move)
            elif keep is not None and keep.WhichOneof("reason"):
                returned.migrating.session = keep.grant.session
                kind = "remote" if played else keep.WhichOneof("reason")
                getattr(returned.migrating, kind).CopyFrom(getattr(played or keep, kind))
            else:
                raise ChannelBroken("it was never told to move a session")

    def _open(self, name: str, packet: bytes) -> node_pb2.ToServer:
        try:
            order = node_pb2.ToServer.FromString(packet)
        except DecodeError:
            raise ChannelBroken("an order that nobody can read") from None
        suffix = node_pb2.ToServer(seal=order.seal).SerializeToString()
        if not packet.endswith(suffix) or not hmac.compare_digest(
            order.seal, self._proof(name, packet[: -len(suffix)])
        ):
            raise ChannelBroken("an order that no monitor gave it")
        return order


class Rounds:
    """Goes to the API servers of an earlier monitor, and waits for each to say what it has."""

    def __init__(
        self,
        returns: Returns,
        left: Iterable[Record],
        adopt: Callable[[Channel, Record, node_pb2.Returned], None],
        gone: Callable[[Record], None],
    ) -> None:
        self._returns = returns
        self._left = left
        self._adopt = adopt
        self._gone = gone

    async def run(self) -> None:
        """Go to all of them at once. Returns when each has come back, or is gone."""
        await asyncio.gather(*(self._visit(record) for record in self._left))
        self._returns.all_back.set()

    async def _visit(self, record: Record) -> None:
        channel = None
        try:
            channel = visit(self._returns.path(record.name))
            message = await _first(channel, record)
            if message is None or not message.HasField("returned"):
                raise ChannelBroken("it said nothing")
            self._returns.check(record.name, message.returned)
            self._adopt(channel, record, message.returned)
        except (ChannelBroken, OSError) as error:
            log.warning("an API server was not adopted", server=record.pid, reason=str(error))
            if channel:
                channel.close()
            self._gone(record)


def _is_gone(record: Record) -> bool:
    """As far as anybody can tell now."""
    try:
        return start_time(record.pid) != record.began
    except OSError:
        return False


async def _first(channel: Channel, record: Record) -> node_pb2.FromServer | None:
    """The first that it says. Raises ChannelBroken if its process is gone: somebody else may have its socket
    open. One that hangs may come back, but not at any time: its session is in nobody's books until then.
    """
    saying = asyncio.ensure_future(channel.receive(RETURNED_MAX))
    ends = time.monotonic() + SILENT_SECONDS
    try:
        while not (await asyncio.wait([saying], timeout=LOOK_SECONDS))[0]:
            if _is_gone(record):
                raise ChannelBroken("its process is gone")
            if time.monotonic() > ends:
                raise ChannelBroken(f"it said nothing for {SILENT_SECONDS:g} s")
        return saying.result()
    finally:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
