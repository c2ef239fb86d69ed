"""The arbiter's process: sockets to API servers, one to the monitor, and a clock."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuferry.native.descriptors import receive

from ..policy.place import Place
from ..policy.sharing import Sharing
from ..policy.turnstile import build_turns
from .gpu import Arbiter, Voice
from .gpus import Gpus, Unfit
from .words import SIZE, NoPacket, Packet, Page, pack, unpack

PACKET_MOST = 64 << 10
PACKETS_AT_ONCE = 16  # of one API server: who says much keeps nobody waiting
ENTRIES = 200  # sessions in one packet of a report
PR_SET_PDEATHSIG = 1


class Line:
    """The way to one API server. Who cannot be written to is gone, or does not read, and harms itself."""

    def __init__(self, key: int, end: socket.socket, page: int) -> None:
        self.key, self.end = key, end
        self._page = Page(page)
        end.setblocking(False)

    def send(self, packet: Packet) -> None:
        with contextlib.suppress(OSError):
            self.end.send(pack(packet))

    def show(self, stop: bool, wanted: bool) -> None:
        self._page.set(stop, wanted)

    def close(self) -> None:
        self.end.close()
        self._page.close()


class Process:
    """Everything that one arbiter process has."""

    def __init__(self, control: socket.socket, sharing: Sharing, overrun: int, tells_soon: bool) -> None:
        self._control, self._sharing, self._overrun = control, sharing, overrun
        control.setblocking(False)
        self._poller = select.epoll()
        self._poller.register(control, select.EPOLLIN)
        self._lines: dict[int, Line] = {}  # by descriptor
        self._by_key: dict[int, Line] = {}
        self._gpus = Gpus(self._arbiter, self._tell_soon if tells_soon else lambda session, spared: None)

    def _arbiter(self, device: int, voice: Voice) -> Arbiter:
        policy = build_turns(self._sharing, time.monotonic_ns())
        return Arbiter(policy, self._sharing.at_once, self._overrun, voice)

    def run(self) -> None:
        """Serve until the monitor is gone."""
        while True:
            found = self._poller.poll(self._patience())
            # What the monitor says comes first: a session is assigned before it asks.
            if any(fd == self._control.fileno() for fd, _ in found) and not self._obey():
                return
            for fd, _ in found:
                if fd in self._lines:
                    self._hear(self._lines[fd])
            self._gpus.tick(time.monotonic_ns())

    def _patience(self) -> float:
        deadline = self._gpus.deadline()
        if deadline is None:
            return -1
        return max(0.0, (deadline - time.monotonic_ns()) / 1e9)

    # -- API servers

    def _hear(self, line: Line) -> None:
        for _ in range(PACKETS_AT_ONCE):
            try:
                data = line.end.recv(SIZE + 1)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            # A request may be of a session of which the monitor spoke since we looked: it is named first.
            self._obey()
            if self._by_key.get(line.key) is not line:
                return
            now = time.monotonic_ns()
            if not data:
                self._remove(line, now)
                return
            try:
                self._gpus.heard(line.key, unpack(data), now)
            except (NoPacket, Unfit) as error:
                self._say({"broken": line.key, "reason": str(error)})
                self._remove(line, now)
                return

    def _remove(self, line: Line, now: int) -> None:
        self._poller.unregister(line.end)
        del self._lines[line.end.fileno()], self._by_key[line.key]
        self._gpus.remove(line.key, now)
        line.close()

    # -- the monitor

    def _obey(self) -> bool:
        while True:
            try:
                data, files = receive(self._control, PACKET_MOST, 2)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._do(json.loads(data), files)

    def _do(self, order: Mapping[str, Any], files: list[int]) -> None:
        now = time.monotonic_ns()
        what, key = order["do"], order.get("key", 0)
        if what == "add":
            end, page = files
            line = Line(key, socket.socket(fileno=end), page)
            os.close(page)
            if key in self._by_key:
                self._remove(self._by_key[key], now)
            self._lines[line.end.fileno()] = self._by_key[key] = line
            self._poller.register(line.end, select.EPOLLIN)
            self._gpus.add(key, order["devices"], line)
        elif what == "assign":
            wishes = (order["request"], order["limit"], order["function"])
            self._gpus.assign(key, order["session"], *wishes, now, order["owner"])
        elif what == "place":
            self._gpus.place(key, Place(order["place"]), order["least"], now)
        elif what == "free":
            self._gpus.free(key, now)
        elif what == "remove":
            if key in self._by_key:
                self._remove(self._by_key[key], now)
        elif what == "report":
            self._report(now)
        elif what == "ping":
            self._say({"pong": now})

    def _report(self, now: int) -> None:
        for device, arbiter in self._gpus.arbiters.items():
            entries = [[told.session, *told.use] for told in self._gpus.uses(device, now)]
            figures = {
                "device": device,
                "span": arbiter.span(now),
                "handed": arbiter.handed,
                "overruns": arbiter.overruns,
                "waited": arbiter.waited,
                "own": self._gpus.own.get(device, 0),
            }
            for first in range(0, max(1, len(entries)), ENTRIES):
                self._say({**figures, "first": first == 0, "uses": entries[first : first + ENTRIES]})
        self._say({"reported": True})

    def _tell_soon(self, session: int, spared: Sequence[int]) -> None:
        self._say({"soon": session, "spared": spared})

    def _say(self, message: Mapping[str, Any]) -> None:
        """Unless it does not read: nobody waits for a monitor that hangs."""
        with contextlib.suppress(BlockingIOError):
            self._control.send(json.dumps(message).encode())


def main(arguments: list[str]) -> None:
    """`--control-fd N SETTINGS`: SETTINGS is a JSON object: `sharing`, `overrun`, `soon`."""
    control = socket.socket(fileno=int(arguments[1]))
    settings = json.loads(arguments[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its monitor
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Process(control, Sharing(**settings["sharing"]), settings["overrun"], settings["soon"]).run()
