"""The monitor's end of a control channel, before API servers that their guests have taken over."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import tempfile
import threading
import time

import pytest
from gpuferry.monitor.pool.channel import ChannelBroken, Descriptor, channel_pair, read_message
from gpuferry.specs._generated import migration_pb2, node_pb2

MESSAGES = 100
LINGER = 60  # seconds


def test_who_never_stops_talking_keeps_nobody_waiting() -> None:
    async def rounds_meanwhile() -> int:
        channel, theirs = channel_pair()
        said = node_pb2.FromServer(stats=node_pb2.Stats()).SerializeToString()
        for _ in range(MESSAGES):
            theirs.send(said)
        rounds = 0

        async def others() -> None:
            nonlocal rounds
            while True:
                await asyncio.sleep(0)
                rounds += 1

        working = asyncio.ensure_future(others())
        for _ in range(MESSAGES):
            assert await channel.receive()
        working.cancel()
        channel.close()
        theirs.close()
        return rounds

    assert asyncio.run(rounds_meanwhile()) >= MESSAGES


def test_a_socket_beside_a_message_that_lingers_keeps_nobody_waiting() -> None:
    """Whose buffer is full, and whose last close would wait until it is sent: it took 60.5 s when lingering
    was not taken off.
    """

    async def seconds() -> float:
        channel, theirs = channel_pair()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sender = socket.create_connection(listening.getsockname())
            reader, _ = listening.accept()
        with theirs, reader:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
            sender.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sender.send(bytes(1 << 20))
            said = node_pb2.FromServer(stats=node_pb2.Stats()).SerializeToString()
            socket.send_fds(theirs, [said], [sender.fileno()])
            sender.close()
            assert await channel.receive()
            began = time.monotonic()
            channel.close()
            return time.monotonic() - began

    assert asyncio.run(seconds()) < LINGER - 10


def test_a_channel_is_read_again_after_a_wait_that_was_given_up() -> None:
    async def said_after_that() -> str | None:
        channel, theirs = channel_pair()
        waiting = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        theirs.send(node_pb2.FromServer(failed=node_pb2.Failed(reason="late")).SerializeToString())
        await asyncio.sleep(0.01)  # nobody listens, and nothing spins
        message = await channel.receive()
        theirs.close()
        assert await channel.receive() is None
        channel.close()
        return message.failed.reason if message else None

    assert asyncio.run(said_after_that()) == "late"


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    "say",
    [
        lambda seconds: node_pb2.FromServer(stats=node_pb2.Stats(busy_seconds=seconds)),
        lambda seconds: node_pb2.FromServer(stats=node_pb2.Stats(calls=[node_pb2.Calls(seconds=seconds)])),
        lambda seconds: node_pb2.FromServer(
            ended=node_pb2.SessionEnded(stats=node_pb2.Stats(busy_seconds=seconds))
        ),
        lambda seconds: node_pb2.FromServer(
            moved=migration_pb2.Moved(report=migration_pb2.Report(pause_seconds=seconds))
        ),
        lambda seconds: node_pb2.FromServer(returned=node_pb2.Returned(session_seconds=seconds)),
    ],
)
def test_what_is_no_time_ends_who_says_it(say, seconds: float) -> None:  # type: ignore[no-untyped-def]
    async def hear() -> None:
        channel, theirs = channel_pair()
        theirs.send(say(seconds).SerializeToString())
        try:
            await channel.receive()
        finally:
            channel.close()
            theirs.close()

    with pytest.raises(ChannelBroken, match="seconds"):
        asyncio.run(hear())


@pytest.mark.parametrize(
    "said",
    [
        node_pb2.FromServer(stats=node_pb2.Stats(turn=7)),  # type: ignore[arg-type]
        node_pb2.FromServer(stats=node_pb2.Stats(turn_ago=math.nan)),
        node_pb2.FromServer(stats=node_pb2.Stats(resides=node_pb2.Resides(where=77))),  # type: ignore[arg-type]
        node_pb2.FromServer(resides=node_pb2.Resides(where=77)),  # type: ignore[arg-type]
        node_pb2.FromServer(returned=node_pb2.Returned(resides=node_pb2.Resides(where=77))),  # type: ignore[arg-type]
        node_pb2.FromServer(moving=migration_pb2.Moving(phase=99)),  # type: ignore[arg-type]
        node_pb2.FromServer(
            moved=migration_pb2.Moved(
                report=migration_pb2.Report(phases=[migration_pb2.PhaseTime(phase=99)])  # type: ignore[arg-type]
            )
        ),
        node_pb2.FromServer(stats=node_pb2.Stats(memory_mapped=2**64 - 1)),
        node_pb2.FromServer(stats=node_pb2.Stats(mapped_on=[1, 2**64 - 1])),
        node_pb2.FromServer(stats=node_pb2.Stats(calls=[node_pb2.Calls(succeeded=2**64 - 1)])),
        node_pb2.FromServer(moving=migration_pb2.Moving(bytes_done=2**64 - 1)),
    ],
)
def test_what_nobody_could_name_or_add_up_ends_who_says_it(said: node_pb2.FromServer) -> None:
    """The policy of residency, status and metrics of all sessions would fail, and with them the monitor."""
    with pytest.raises(ChannelBroken):
        read_message(said.SerializeToString())


@pytest.mark.parametrize(
    "say",
    [
        lambda text: node_pb2.FromServer(ended=node_pb2.SessionEnded(reason=text)),
        lambda text: node_pb2.FromServer(failed=node_pb2.Failed(reason=text)),
        lambda text: node_pb2.FromServer(moved=migration_pb2.Moved(reason=text)),
        lambda text: node_pb2.FromServer(resides=node_pb2.Resides(reason=text)),
    ],
)
def test_what_people_read_steers_no_terminal(say) -> None:  # type: ignore[no-untyped-def]
    """`gpuferry status` shows why a session did not move, in the words of its API server."""
    message = read_message(say("a\x1b[2Jb\n" + "x" * 5000).SerializeToString())
    kind = message.WhichOneof("message")
    assert kind
    assert getattr(message, kind).reason == "a [2Jb " + "x" * 993


def test_what_an_api_server_says_of_a_session_is_heard() -> None:
    stats = node_pb2.Stats(turn=node_pb2.TURN_STATE_HAS, turn_ago=-1.0, memory_mapped=1 << 40)
    message = node_pb2.FromServer(stats=stats)
    assert read_message(message.SerializeToString()) == message


def test_what_came_beside_messages_is_closed_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file in memory that is the last hold, which takes a tenth of a second for each gigabyte: an API
    server that was taken over kept everybody waiting for as long as it liked.
    """
    where: list[int] = []
    close = Descriptor.close

    def noted(descriptor: Descriptor) -> None:
        where.append(threading.get_ident())
        close(descriptor)

    monkeypatch.setattr(Descriptor, "close", noted)

    async def hear() -> None:
        channel, theirs = channel_pair()
        said = node_pb2.FromServer(stats=node_pb2.Stats()).SerializeToString()
        with theirs, tempfile.TemporaryFile() as file:
            for _ in range(2):
                socket.send_fds(theirs, [said], [file.fileno()])
                assert await channel.receive()
        channel.close()

    asyncio.run(hear())
    assert len(where) == 2
    assert threading.get_ident() not in where
