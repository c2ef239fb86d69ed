"""A monitor that orders whatever it likes: its API servers and keepers obey, or end and say why."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpuferry.specs._generated import node_pb2

from tests.apiserver.server import DEADLINE, Process, Server
from tests.fuzz.building import FOLDER
from tests.fuzz.forger import Forger

SESSION = 7
LIFE = 200  # orders to one process, if it lives so long
KINDS = [field.name for field in node_pb2.ToServer.DESCRIPTOR.oneofs[0].fields]
RARE = {"grant": 0.2, "keep": 0.2, "shutdown": 0.02}  # a second one ends whoever gets it
# What a monitor puts beside them: `s` a socket, `f` a file. Beside others there is nothing.
BESIDE = {"grant": ("s", "sf"), "home": ("s", ""), "resume": ("s",), "share": ("f",), "keep": ("s", "ss")}
BESIDE |= {
    "migrate": ("s", "ss", "ssf"),
    "play": ("sf", "ssf"),
    "fetched": ("", "f", "ff"),
    "leave": ("", "f", "ff"),
}


class Orders:
    """What is said to one process, one packet after another, with descriptors of all kinds beside it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._forger = Forger(chance, (SESSION, SESSION, SESSION, 8), wild=0.03)
        self._ours: list[socket.socket] = []  # other ends of sockets that were given away

    def next(self) -> tuple[str, bytes]:
        """The kind of an order, and its packet."""
        kind = self._chance.choices(KINDS, [RARE.get(kind, 1.0) for kind in KINDS])[0]
        return kind, self._forger.packet(node_pb2.ToServer(), kind)

    @contextlib.contextmanager
    def beside(self, kind: str) -> Iterator[list[int]]:
        """Descriptors that go beside an order; now and then others than should."""
        wanted = self._chance.choice(BESIDE.get(kind, ("",)))
        if self._chance.random() < 0.03:
            wanted = "".join(self._chance.choice("sf") for _ in range(self._chance.randrange(5)))
        with contextlib.ExitStack() as stack:
            made = [self._socket() if each == "s" else self._file() for each in wanted]
            for descriptor in made:
                stack.callback(os.close, descriptor)
            yield made

    def _file(self) -> int:
        if self._chance.random() < 0.05:
            return os.open("/dev/null", os.O_RDWR)
        return os.memfd_create("book")

    def _socket(self) -> int:
        ours, theirs = socket.socketpair()
        self._ours.append(ours)
        if self._chance.random() < 0.3:
            ours.send(self._chance.randbytes(self._chance.randrange(1, 100)))
        if len(self._ours) > 8 or self._chance.random() < 0.1:
            self._ours.pop(self._chance.randrange(len(self._ours))).close()
        return theirs.detach()

    def close(self) -> None:
        """Hang up on all sessions."""
        for each in self._ours:
            each.close()


class Keeper(Process):
    """A keeper in a process of its own, and the log of what it says."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, [sys.executable, "-m", "gpuferry.apiserver.keeper"], {})


def _tell(process: Process, packet: bytes, descriptors: list[int]) -> bool:
    """Say it, and hear what the process has to say. False: it is gone."""
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends:
        readable, writable, _ = select.select([process.control], [process.control], [], 1.0)
        try:
            if readable and not process.control.recv(1 << 16):
                return False
            if writable:
                socket.send_fds(process.control, [packet], descriptors)
                return True
        except (BrokenPipeError, ConnectionResetError):
            return False
    raise AssertionError("it hears nothing any more")


def _attack(process: Process, chance: random.Random) -> list[str]:
    """Raises AssertionError if it ends in another way than it should."""
    orders, said = Orders(chance), []
    process.control.setblocking(True)
    try:
        for _ in range(LIFE):
            kind, packet = orders.next()
            said.append(f"{kind} {packet.hex()}")
            with orders.beside(kind) as descriptors:
                if not _tell(process, packet, descriptors):
                    break
    finally:
        orders.close()
    alive = _tell(process, node_pb2.ToServer(stats=node_pb2.StatsRequest()).SerializeToString(), [])
    while alive and select.select([process.control], [], [], DEADLINE)[0]:
        try:
            data = process.control.recv(1 << 16)
        except ConnectionResetError:
            break
        if not data or node_pb2.FromServer.FromString(data).HasField("stats"):
            break
    if alive and process.process.poll() is None:
        process.process.kill()
        process.process.wait()
    else:
        status = process.process.wait(DEADLINE)
        assert status in (0, 1), f"it ended with {status}"
    log = process.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") :]
    return said


def run(inputs: int, seed: int) -> int:
    """Give so many orders. Returns how many it were; raises AssertionError, with where they are written."""
    chance, count = random.Random(seed), 0
    with tempfile.TemporaryDirectory(prefix="gpuferry-fuzz-") as folder:
        while count < inputs:
            log = Path(folder, "log")
            log.write_bytes(b"")
            said: list[str] = []
            with Keeper(log) if chance.random() < 0.3 else Server(log) as process:
                try:
                    said = _attack(process, chance)
                except AssertionError as error:
                    path = FOLDER / f"crash-orders-{seed}"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("\n".join(said))
                    raise AssertionError(
                        f"seed {seed}, order {count} and later, in {path}: {error}"
                    ) from None
            count += len(said)
    return count
