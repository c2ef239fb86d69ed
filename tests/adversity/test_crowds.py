"""Crowds at a monitor with few descriptors: while they last, another tenant's guest gets its session."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from gpuferry.specs._generated import control_pb2
from gpuferry.specs._generated.frames import Frame

from tests.helpers.warm import CLI
from tests.monitor import harness
from tests.monitor.fake_guest import connect, read_frame
from tests.registry.guest import Guest
from tests.tenants.stage import as_tenant, next_frame, tokens, waiting

DESCRIPTORS = 200  # 1,010 half requests kept a guest out for 59 s when there were 1,024


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *CLI)
    with harness.monitor(
        "--pool", "2", "--http", "127.0.0.1:0", "--tenants", "crowd=leave=0", cli=limited
    ) as running:
        running.wait_idle(2)
        yield running


@pytest.fixture(scope="module")
def token(monitor: harness.Monitor) -> dict[str, str]:
    return tokens(monitor, "crowd", "bystander")


def published(monitor: harness.Monitor, name: str) -> tuple[str, int]:
    endpoint = Path(monitor.runtime, "endpoint").read_text()
    found = dict(line.split("=", 1) for line in endpoint.splitlines())[name]
    host, _, port = found.removeprefix("http://").rpartition(":")
    return host, int(port)


def bystander_is_served(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with Guest(monitor.tcp, token["bystander"]) as guest:
        assert guest.echo(b"right") == b"right"


@pytest.mark.system
def test_the_monitor_has_so_few_descriptors(monitor: harness.Monitor) -> None:
    limits = Path(f"/proc/{monitor.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3:5] == [str(DESCRIPTORS)] * 2


@pytest.mark.system
def test_half_requests_of_the_page(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(DESCRIPTORS + 50):
            half = stack.enter_context(socket.create_connection(published(monitor, "GPUFERRY_HTTP")))
            with contextlib.suppress(OSError):  # it made room for another already
                half.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        bystander_is_served(monitor, token)
        bystander_is_served(monitor, token)


@pytest.mark.system
def test_silent_and_half_guests(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(DESCRIPTORS + 50):
            silent = stack.enter_context(connect(monitor.tcp))
            if number % 2:
                with contextlib.suppress(OSError):
                    silent.sendall(b"\x40\0\0")
        bystander_is_served(monitor, token)


def test_connections_to_the_control_port(monitor: harness.Monitor, token: dict[str, str]) -> None:
    path = monitor.control.removeprefix("unix:")
    with contextlib.ExitStack() as stack:
        for _ in range(DESCRIPTORS + 50):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.setblocking(False)
            with contextlib.suppress(OSError):  # the backlog is full, or it was turned away
                silent.connect(path)
        bystander_is_served(monitor, token)


def test_refused_guests_in_a_storm(monitor: harness.Monitor, token: dict[str, str]) -> None:
    """None of them reads why; the log has a few lines and a count."""
    with contextlib.ExitStack() as stack:
        for _ in range(DESCRIPTORS + 50):
            connection = stack.enter_context(connect(monitor.tcp))
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        bystander_is_served(monitor, token)
    assert monitor.log.read_text().count('"event": "refused"') <= 50


@pytest.mark.system
def test_a_crowd_that_waits(monitor: harness.Monitor, token: dict[str, str]) -> None:
    """It takes all places in the queue; the next of another tenant takes one of them, and has its turn
    next.
    """
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Guest(monitor.tcp, token["crowd"])) for _ in range(2)]
        told = []
        for _ in range(DESCRIPTORS):
            connection, op, body = waiting(monitor, token["crowd"])
            stack.callback(connection.close)
            told.append((op, body))
        assert told[0][0] == Frame.QUEUED
        refused = [body for op, body in told if op == Frame.REFUSED]
        assert refused
        assert b"guests wait already" in refused[0]
        one, op, _ = waiting(monitor, token["bystander"])
        stack.callback(one.close)
        assert op == Frame.QUEUED
        running[0].close()
        running[1].close()
        assert next_frame(one)[0] == Frame.WELCOME
    monitor.wait_for(lambda status: not status.sessions and not status.queue, "all gone")
    assert monitor.log.read_text().count('"event": "left the queue"') < len(told) // 4
    monitor.wait_idle(2)


def test_calls_of_one_tenant_without_end(monitor: harness.Monitor, token: dict[str, str]) -> None:
    """Beyond its rate it is told so, and the operator is answered."""
    monitor.run("tenant", "set", "crowd", "--calls", "0.001")  # no machine is slower than that

    def refused() -> grpc.StatusCode | None:
        try:
            monitor.stub.Status(
                control_pb2.StatusRequest(), metadata=as_tenant(token["crowd"]), timeout=harness.DEADLINE
            )
        except grpc.RpcError as error:
            return error.code()
        return None

    # The monitor reads the limit a moment after it was set.
    assert harness.wait_until(refused, "a refusal") == grpc.StatusCode.RESOURCE_EXHAUSTED
    monitor.status()
    bystander_is_served(monitor, token)


def test_after_all_that_it_still_speaks(monitor: harness.Monitor, token: dict[str, str]) -> None:
    bystander_is_served(monitor, token)
    with connect(monitor.tcp) as connection:
        assert read_frame(connection)[0] == Frame.GREETING
    assert monitor.process.poll() is None
