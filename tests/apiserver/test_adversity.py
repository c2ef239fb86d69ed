"""Guests that vanish, do not read, or break the device: the server frees all, or makes way for another."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest
from gpuferry.specs._generated import node_pb2

from tests.apiserver import arrays, kernels
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server

ILLEGAL_ADDRESS = 700
PAGE = 2 << 20
CHUNK = 4 << 20
EXIT_LIMIT = 120.0  # far above the second that is promised: no test asserts a time


@pytest.fixture
def server(own_server: Server) -> Server:
    """What it was before a session is looked at, or nothing is left of it."""
    return own_server


def endless(guest: Guest) -> None:
    """A kernel that nothing will stop."""
    kernel = kernels.bind(guest, "wait_for")
    address = guest.map()
    stream = handle("stream", 0)
    guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    guest.launch(kernel, struct.pack("<QQ", address, address), block=(1, 1, 1), stream=stream)
    assert guest.call("cuStreamQuery", hStream=stream).status == 600


def break_device(guest: Guest) -> None:
    """An illegal address inside a kernel."""
    kernel = kernels.bind(guest, "scale")
    guest.launch(kernel, struct.pack("<QI", guest.window + guest.window_size - 4096, 1))
    assert guest.sync().status == ILLEGAL_ADDRESS


def test_vanished_under_an_endless_kernel(server: Server) -> None:
    guest = server.connect()
    endless(guest)
    guest.socket.close()
    report = server.ended()
    assert (report.cause, report.clean) == (node_pb2.CAUSE_LOST, False)
    assert server.wait_for_exit(EXIT_LIMIT) == 1


@pytest.mark.system
def test_vanished_while_the_server_waits_for_staging(server: Server) -> None:
    """The dispatcher is stuck behind the kernel: only the shell can see that the guest is gone."""
    guest = server.connect()
    endless(guest)
    address = guest.map(2, at=2)
    guest.socket.settimeout(2)
    with contextlib.suppress(TimeoutError):
        for _ in range(40):
            guest.write(address, bytes(CHUNK), handle("stream", 0))
    guest.socket.close()
    assert not server.ended().clean
    assert server.wait_for_exit(EXIT_LIMIT) == 1


def test_vanished_while_the_server_waits_for_its_function(server: Server) -> None:
    """In the driver, which waits for the device, whose stream waits for a function of the program: it had the
    time of a copy, and cost the process.
    """
    guest = server.connect()
    arrays.create(guest, arrays.KEPT)
    guest.send("sessionHostCall", stream=0, call=7, always=1)
    guest.host_call()
    guest.send("cuArrayDestroy", hArray=arrays.KEPT)
    guest.socket.close()
    report = server.ended()
    assert (report.cause, report.clean) == (node_pb2.CAUSE_LOST, True)


def test_revoked_under_an_endless_kernel(server: Server) -> None:
    guest = server.connect()
    endless(guest)
    server.order(revoke=node_pb2.Revoke(session=1, reason="enough"))
    report = server.ended()
    assert (report.reason, report.cause, report.clean) == ("revoked: enough", node_pb2.CAUSE_REVOKED, False)
    assert server.wait_for_exit(EXIT_LIMIT) == 1


def test_shutdown_under_an_endless_kernel(server: Server) -> None:
    endless(server.connect())
    server.order(shutdown=node_pb2.Shutdown(grace_seconds=0))
    assert not server.ended().clean
    assert server.wait_for_exit(EXIT_LIMIT) == 1


def test_vanished_in_the_middle_of_copies(server: Server) -> None:
    for _ in range(3):
        guest = server.connect()
        address = guest.map(8)
        for _ in range(4):
            guest.write(address, bytes(CHUNK))
            guest.ask_read(address, CHUNK)
        guest.socket.close()
        assert server.ended().clean
        server.ready()


def test_a_guest_that_does_not_read_holds_up_nothing(server: Server) -> None:
    guest = server.connect()
    address = guest.map(2)
    for _ in range(8):
        guest.ask_read(address, CHUNK)
    for _ in range(100):
        guest.send("sessionFence")
    guest.write(address, b"behind the replies")
    deadline = time.monotonic() + EXIT_LIMIT
    while server.stats().calls_async < 102:  # the dispatcher is not stuck behind what nobody reads
        assert time.monotonic() < deadline
    assert guest.sync().status == 0


def test_a_guest_that_asks_without_end_and_does_not_read(server: Server) -> None:
    guest = server.connect()
    guest.socket.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while True:
            guest.ask("cuStreamQuery", hStream=0)
    assert server.stats().rss < 200 << 20
    guest.socket.close()
    assert server.ended().clean
    server.ready()


def test_a_reset_connection(server: Server) -> None:
    guest = server.connect()
    guest.map()
    guest.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    guest.ask("cuCtxSynchronize")
    guest.socket.close()
    assert server.ended().clean
    server.ready()


def test_a_sticky_error_stays_and_costs_the_process(server: Server) -> None:
    guest = server.connect()
    break_device(guest)
    assert guest.sync().status == ILLEGAL_ADDRESS
    assert guest.answer(guest.ask_read(guest.window, 4)).status != 0
    guest.map()
    reply = guest.sync()
    assert reply.status == ILLEGAL_ADDRESS
    guest.close()
    assert not server.ended().clean
    assert server.wait_for_exit() == 1


def test_a_reset_of_the_primary_context_mends_a_sticky_error(server: Server) -> None:
    guest = server.connect()
    stream = handle("stream", 0)
    guest.send("cuStreamCreateWithPriority", phStream=stream, flags=0, priority=0)
    break_device(guest)
    assert guest.call("cuDevicePrimaryCtxReset_v2", dev=0).status == 0
    assert guest.sync().status == 0
    assert guest.call("cuStreamQuery", hStream=stream).status == 400  # it went with the context
    guest.send("cuLibraryUnload", library=kernels.LIBRARY)
    address = guest.map(1, at=9)
    guest.write(address, struct.pack("<I", 5))
    guest.launch(kernels.bind(guest, "scale", 1), struct.pack("<QI", address, 7), block=(1, 1, 1))
    assert guest.read(address, 4) == struct.pack("<I", 35)
    guest.close()
    assert server.ended().clean
    server.ready()
    assert server.connect().sync().status == 0


def test_a_failure_ends_with_the_contexts_of_its_device(server: Server) -> None:
    guest = server.connect()
    params, second = struct.pack("<QI", 8, 1), handle("context", 1)
    guest.send("cuCtxCreate_v2", pctx=second, flags=0, dev=0)
    shape = {"grid": (1, 1, 1), "block": (1, 1, 1), "shared": 0, "attributes": 0, "params": len(params)}
    kernel = kernels.bind(guest, "scale")
    guest.send("sessionLaunch", context=2, function=kernel, stream=0, payload=params, **shape)
    assert guest.call("cuCtxSynchronize", context=2).status == ILLEGAL_ADDRESS
    reply = guest.sync()
    assert (reply.status, reply.latched) == (ILLEGAL_ADDRESS, 0)
    assert guest.call("cuCtxDestroy_v2", ctx=second).status == 0
    assert guest.call("cuDevicePrimaryCtxReset_v2", dev=0).status == 0
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, 0)
    guest.close()
    assert server.ended().clean


def test_a_reset_between_work(server: Server) -> None:
    guest = server.connect()
    for turn in range(3):
        address = guest.map(1, at=turn)
        guest.write(address, b"abcd")
        pending = guest.ask_read(address, 4)
        assert guest.call("cuDevicePrimaryCtxReset_v2", dev=0).status == 0
        assert guest.answer(pending).payload == b"abcd"
        guest.send("sessionMemUnmap", address=address, size=PAGE)
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, 0)


def test_device_memory_is_free_again(server: Server) -> None:
    """Most of the device, again and again: it fits only if each session left nothing."""
    for _ in range(3):
        guest = server.connect(quota=1 << 40)
        total = guest.device.total_memory
        size = total * 3 // 4 // PAGE * PAGE
        assert guest.call("sessionMemMap", address=guest.window, size=size).status == 0
        guest.socket.close()
        assert server.ended().clean
        server.ready()


def test_who_waits_for_what_never_comes_is_not_given_the_time_of_a_copy(tmp_path: Path) -> None:
    with Engine(tmp_path / "log") as engine:
        guest = engine.session()
        address = guest.map()
        guest.write(address, bytes(8))
        assert guest.sync().latched == 0
        assert not engine.call("may_never_end")
        guest.send("cuStreamWaitValue32_v2", stream=0, addr=address, value=0, flags=0)  # here it came
        assert guest.sync().latched == 0
        assert engine.call("may_never_end")
        guest.close()
        assert engine.ended()[1]
