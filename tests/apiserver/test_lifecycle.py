"""From start to the next session: WELCOME, control messages, the scrub, the end of the process."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gpuferry.specs._generated import node_pb2
from gpuferry.specs._generated.frames import ATTRIBUTE_COUNT

from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import GIB, Server

IDLE_RSS_LIMIT = 120 << 20


@pytest.fixture
def server(own_server: Server) -> Server:
    """What it was before a session is looked at, or nothing is left of it."""
    return own_server


def test_welcome_describes_session_and_device(server: Server) -> None:
    guest = server.connect(quota=GIB, proof=bytes(range(32)))
    assert guest.proof == bytes(range(32))
    assert (guest.session, guest.quota, guest.granularity) == (1, GIB, 2 << 20)
    assert guest.window % guest.granularity == 0
    assert guest.window_size >= 1 << 34
    device = guest.device
    assert device.name.rstrip(b"\0")
    assert device.total_memory > 0
    assert device.stream_priority_least >= device.stream_priority_greatest
    assert device.attribute_count == ATTRIBUTE_COUNT
    assert device.attributes[75] == 8  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR of the simulated device
    assert device.limits[0] > 0  # CU_LIMIT_STACK_SIZE


def test_sessions_of_a_tenant_whose_tokens_were_revoked(server: Server) -> None:
    """The grant says when, as the monitor keeps it: in seconds since 1970."""
    guest = server.connect(revocations=[1795922569.25])
    assert guest.sync().status == 0


def test_idle_server_is_small(server: Server) -> None:
    assert server.stats().rss < IDLE_RSS_LIMIT


def test_server_is_small_again_after_a_session(server: Server) -> None:
    guest = server.connect()
    address = guest.map(40)
    for chunk in range(20):
        guest.write(address + (chunk << 22), bytes(4 << 20))
    assert guest.sync().status == 0
    guest.close()
    assert server.ended().clean
    server.ready()
    assert server.stats().rss < IDLE_RSS_LIMIT


def test_no_such_device_is_a_clear_failure(tmp_path: Path) -> None:
    with Server(tmp_path / "log", device=7, GPUFERRY_SIM_DEVICES="1") as server:
        message = server.message()
        assert message.WhichOneof("message") == "failed"
        assert "CUDA_ERROR_INVALID_DEVICE" in message.failed.reason
        assert server.wait_for_exit() == 1


def test_sessions_follow_each_other_on_one_process(server: Server) -> None:
    for _ in range(3):
        guest = server.connect()
        function = kernels.bind(guest, "scale")
        address = guest.map()
        guest.write(address, struct.pack("<4I", 1, 2, 3, 4))
        guest.launch(function, struct.pack("<QI", address, 5), block=(4, 1, 1))
        assert struct.unpack("<4I", guest.read(address, 16)) == (5, 10, 15, 20)
        guest.close()
        ended = server.ended()
        assert (ended.cause, ended.clean, ended.stats.launches) == (node_pb2.CAUSE_CLOSED, True, 1)
        server.ready()


def test_statistics_of_the_session(server: Server, guest: Guest) -> None:
    address = guest.map(3)
    guest.write(address, bytes(1000))
    guest.read(address, 500)
    guest.sync()
    stats = server.stats()
    assert stats.session == 1
    assert stats.memory_mapped == 3 << 21
    assert stats.memory_quota == GIB
    assert stats.calls_async == 2
    assert stats.calls_sync == 2
    assert stats.bytes_in > 1000
    assert stats.bytes_out > 500
    guest.close()
    assert server.ended().stats.memory_mapped == 3 << 21  # as it was when the session ended
    server.ready()
    assert server.stats().session == 0


def test_revoked_session_is_told_why(server: Server, guest: Guest) -> None:
    server.order(revoke=node_pb2.Revoke(session=1, reason="an operator said so"))
    assert guest.expect_end().text == "revoked: an operator said so"
    ended = server.ended()
    assert (ended.cause, ended.clean) == (node_pb2.CAUSE_REVOKED, True)
    server.ready()


def test_a_session_lives_as_long_as_it_may(server: Server) -> None:
    guest = server.connect(wall_seconds=0.2)
    assert guest.expect_end().text == "revoked: the time limit of 0.2 s is over"
    assert server.ended().clean
    server.ready()


def test_a_session_that_is_silent_is_told(server: Server) -> None:
    guest = server.connect(idle_seconds=0.2)
    assert guest.expect_end().text == "revoked: no CUDA call for 0.2 s, which is the limit"
    assert server.ended().clean
    server.ready()


def test_revoke_of_another_session_does_nothing(server: Server, guest: Guest) -> None:
    server.order(revoke=node_pb2.Revoke(session=9, reason="late"))
    assert guest.sync().status == 0


def test_shutdown_ends_the_process(server: Server) -> None:
    server.order(shutdown=node_pb2.Shutdown())
    assert server.wait_for_exit() == 0


def test_end_of_the_control_socket_ends_the_process(server: Server, guest: Guest) -> None:
    assert guest.sync().status == 0
    server.control.close()
    assert server.wait_for_exit() == 0


def test_what_kernels_printed_late_is_not_the_next_guest_s(server: Server) -> None:
    guest = server.connect()
    kernel = kernels.bind(guest, "speak")
    guest.launch(kernel, b"")
    assert guest.sync().status == 0  # it is compiled from here on, and soon done
    guest.launch(kernel, b"")
    guest.close()
    if not server.ended().clean:
        return  # it ran on all the same: this process serves no other guest
    server.ready()
    guest = server.connect()
    address = guest.map()
    guest.launch(kernels.bind(guest, "scale"), struct.pack("<QI", address, 1), block=(1, 1, 1))
    assert guest.sync().status == 0
    assert guest.output == b""


@pytest.mark.parametrize("made", ["streams", "events", "contexts", "libraries"])
def test_what_a_session_leaves_behind_is_gone(server: Server, made: str) -> None:
    for _ in range(2):  # the second session uses the same handles
        guest = server.connect()
        guest.map(5)
        for slot in range(10):
            if made == "streams":
                guest.send(
                    "cuStreamCreateWithPriority", phStream=handle("stream", slot), flags=slot & 1, priority=0
                )
            elif made == "events":
                guest.send("cuEventCreate", phEvent=handle("event", slot), Flags=0)
            elif made == "contexts":
                guest.send("cuCtxCreate_v2", pctx=handle("context", slot + 1), flags=0, dev=0)
        if made == "libraries":
            kernels.bind(guest, "scale")
        reply = guest.sync()
        assert (reply.status, reply.latched) == (0, 0)
        guest.close()
        assert server.ended().clean
        server.ready()
