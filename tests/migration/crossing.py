"""Carries programs to a GPU server, and from there to another one and back, at chosen boundaries of calls.

Two real monitors with their API servers; before each one stands a gate, whose address is the only one that
guests and the other monitor know. So a program goes through a gate wherever its session is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
from gpuferry.guest.endpoint import split_address
from gpuferry.migration.frames import HEADER
from gpuferry.monitor.door import handshake
from gpuferry.specs._generated import control_pb2, frames

from tests.helpers.door import Door
from tests.helpers.tokens import token_of
from tests.migration.carriage import QUOTA, exactly
from tests.migration.gate import SECONDS, TRY_AGAIN, Gate, Journey, Passage, Stop, Way, attempts
from tests.migration.rounds import RUNNING, migrate
from tests.monitor import harness

TOKEN = token_of("both monitors")
DEVICES, POOL = 2, 2  # room for all processes of the largest program, whichever of them have moved


class Node:
    """A monitor, and what stands before it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        settings: dict[str, Any] = {"GPUFERRY_SIM_DEVICES": str(DEVICES), "GPUFERRY_TOKEN": TOKEN}
        options = ("--pool", str(POOL), "--memory", str(QUOTA))  # less than all, for code takes memory too
        self.monitor = stack.enter_context(harness.monitor(*options, server=None, **settings))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"

    def connect(self) -> socket.socket:
        """To the monitor itself."""
        where = split_address(self.monitor.tcp)
        assert not isinstance(where, str)
        connection = socket.create_connection(where)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def session_of(self, pid: int, gate: Gate) -> Any:
        """Once it runs here; None: its program ended before."""
        found: list[Any] = []

        def settled(status: control_pb2.StatusReply) -> bool:
            found[:] = [one for one in status.sessions if one.guest_pid == pid and one.state == RUNNING]
            return bool(found) or gate.over

        self.monitor.wait_for(settled, f"the session of {pid}", SECONDS)
        return found[0] if found else None


class Crossing:
    """Use as a context manager. One program at a time; it may have several sessions."""

    def __init__(self) -> None:
        self._journey = Journey()
        self._gates: dict[int, Gate] = {}  # by process
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Crossing:
        with contextlib.ExitStack() as stack:
            self._nodes = [Node(stack), Node(stack)]
            for node in self._nodes:
                stack.enter_context(Door(node.listening, partial(self._come, node)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def settings(self) -> dict[str, str]:
        """What the guest library reads to find the first of the two."""
        return {"GPUFERRY_MONITOR": self._nodes[0].address, "GPUFERRY_TOKEN": TOKEN}

    def begin(self, stops: Sequence[Stop], _: Way = Way.SERVER) -> Journey:
        """For the next program."""
        self._journey = Journey(stops)
        self._gates = {}
        self._threads = []
        return self._journey

    def finish(self) -> None:
        """After the program's end: waits until nothing is left of it anywhere, and raises what went wrong."""
        for gate in list(self._gates.values()):
            gate.end()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a connection does not end"
        for gate in list(self._gates.values()):
            self._journey.calls = max(self._journey.calls, gate.calls)
        self._journey.sessions = len(self._gates)
        for failure in self._journey.failures:
            raise failure
        for node in self._nodes:  # a keeper is told of the end of its session after the API servers
            node.monitor.wait_for(as_before, "everything is as it was before", SECONDS)

    def _thread(self, target: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        return thread

    def _come(self, node: Node, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads.append(self._thread(self._serve, node, connection, self._journey))

    def _serve(self, node: Node, connection: socket.socket, journey: Journey) -> None:
        """One connection: a guest that begins, one that comes after its session, or the other monitor."""
        try:
            with connection, node.connect() as server:
                connection.sendall(frame(server))
                first = frame(connection)
                gate = self._gate(node, first, journey)
                server.sendall(first)
                passage = Passage(gate, connection, server)
                passage.start()
                passage.join()
        except BaseException as error:
            journey.failures.append(error)

    def _gate(self, node: Node, first: bytes, journey: Journey) -> Gate:
        """By which what follows this frame goes."""
        op, body = HEADER.unpack_from(first)[1], first[HEADER.size :]
        if op == frames.Frame.RESUME:
            number = handshake.read_resume(body, b"").session
            pids = [one.guest_pid for one in node.monitor.status().sessions if one.id == number]
            if not pids:  # it is told that its session went on
                return Gate([])
            journey.followed += 1
            return self._gates[pids[0]]
        if handshake.Extension.RESTORE in handshake.read_hello(body, b"").extensions:
            return Gate([])
        pid = frames.Hello.unpack(body).pid
        gate = self._gates[pid] = Gate(journey.stops)
        self._threads.append(self._thread(self._guide, pid, gate, journey))
        return gate

    def _guide(self, pid: int, gate: Gate, journey: Journey) -> None:
        """Moves a program's session wherever it shall be moved."""
        here, there = self._nodes
        try:
            for stop in journey.stops:
                if gate.reached(stop) and self._move(pid, gate, stop, here, there, journey):
                    here, there = there, here
                gate.go_on(stop)
        except BaseException as error:
            journey.failures.append(error)
        finally:
            gate.go_on(*gate.stops())

    def _move(self, pid: int, gate: Gate, stop: Stop, here: Node, there: Node, journey: Journey) -> bool:
        """Whether it is there now."""
        for _ in attempts():
            session = here.session_of(pid, gate)
            if session is None:
                journey.refused.append("the session is over")
                return False
            try:
                done = migrate(here.monitor, session.id, server=there.address, strategy=stop.strategy)
                moved, reason = done.state == control_pb2.MIGRATION_STATE_DONE, done.reason
            except grpc.RpcError as error:
                moved, reason = False, error.details()
            if moved:
                journey.moved += 1
                return True
            if TRY_AGAIN not in reason:
                break
        journey.refused.append(reason)
        return False


def as_before(status: control_pb2.StatusReply) -> bool:
    """No session is left, and all that was given to one is free."""
    return not status.sessions and all(
        device.pool_idle == POOL and device.memory_granted == 0 for device in status.devices
    )


def frame(connection: socket.socket) -> bytes:
    """One frame, and not a byte more."""
    header = exactly(connection, HEADER.size)
    if not header:
        raise ConnectionResetError("nobody shakes hands")
    return header + exactly(connection, HEADER.unpack(header)[0] - HEADER.size)
