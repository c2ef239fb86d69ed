"""A session stands still between two frames, and goes on, or is taken elsewhere with nothing lost."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.apiserver.end import CLOSED
from gpuferry.specs._generated.frames import ReplyPrefix

from tests.apiserver import kernels
from tests.apiserver.engine import Engine
from tests.apiserver.guest import HEADER, Guest, encode, handle
from tests.monitor.harness import wait_until

QUIET = 0.2  # seconds in which nothing comes


@contextlib.contextmanager
def session(engine: Engine, resumable: bool = False) -> Iterator[Guest]:
    guest = engine.session(resumable=resumable)
    yield guest
    guest.socket.close()
    engine.theirs.shutdown(socket.SHUT_RDWR)
    if resumable:
        engine.call("end", CLOSED)
    assert engine.ended()[1]


def until_called(engine: Engine, calls: int) -> None:
    while engine.call("stats")["calls_sync"] < calls:
        time.sleep(0.001)


def is_silent(guest: Guest) -> bool:
    return not select.select([guest.socket], [], [], QUIET)[0]


@pytest.mark.parametrize("resumable", [False, True])
def test_nothing_is_served_while_it_stands_still(engine: Engine, resumable: bool) -> None:
    with session(engine, resumable) as guest:
        guest.sync()
        assert engine.call("hold", 60.0)
        request = guest.ask("cuCtxSynchronize")
        assert is_silent(guest)
        engine.call("proceed")
        assert guest.answer(request).status == 0


def test_a_busy_session_stands_still_too(engine: Engine) -> None:
    with session(engine) as guest:
        requests = []
        for _ in range(20):
            requests += [guest.ask("cuCtxSynchronize") for _ in range(50)]
            assert engine.call("hold", 60.0)
            engine.call("proceed")
        assert all(guest.answer(request).status == 0 for request in requests)


def test_half_a_call_is_taken_along(engine: Engine) -> None:
    with session(engine) as guest:
        frame = encode("cuCtxSynchronize", 1000, 1, b"", {})
        guest.socket.sendall(frame[:10])
        while True:
            assert engine.call("hold", 60.0)
            unread = engine.call("unread")
            engine.call("proceed")
            if unread:
                break
        assert unread == frame[:10]
        guest._waiting[1000] = "cuCtxSynchronize"
        guest.socket.sendall(frame[10:])
        assert guest.answer(1000).status == 0


def test_in_the_middle_of_a_large_payload_it_cannot(engine: Engine) -> None:
    with session(engine) as guest:
        address = guest.map(2)
        guest.sync()
        data = os.urandom(1 << 20)
        values = {"stream": 0, "address": address, "pitch": 0, "width": len(data), "rows": 1}
        frame = encode("sessionCopyIn", 0, 1, data, values)
        guest.socket.sendall(frame[: len(frame) // 2])
        while engine.call("hold", 0.05):  # until it has begun to read it
            engine.call("proceed")
        guest.socket.sendall(frame[len(frame) // 2 :])
        assert guest.read(address, len(data)) == data
        assert engine.call("hold", 60.0)
        engine.call("proceed")


def test_what_the_guest_did_not_read_is_taken_along(engine: Engine) -> None:
    """The bytes in the socket and those taken along are whole answers, in order."""
    with session(engine) as guest:
        address = guest.map(2)
        data = os.urandom(1 << 20)
        guest.write(address, data)
        for _ in range(8):
            guest.ask_read(address, len(data))
        guest.ask("cuCtxSynchronize")
        until_called(engine, 9)
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 60.0) == ""
        rest, head = engine.call("unsent"), engine.call("unsent_head")
        stream = bytearray()
        while not is_silent(guest):
            stream += guest.socket.recv(1 << 20)
        assert rest
        starts, at = [], 0
        stream += rest
        while at < len(stream):
            starts.append(at)
            size, _, _, request, _ = HEADER.unpack_from(stream, at)
            if request <= 8:
                assert stream[at + HEADER.size + ReplyPrefix.SIZE : at + size] == data
            at += size
        assert len(starts) == 9
        assert at == len(stream)
        assert len(stream) - len(rest) + head in starts
        assert HEADER.unpack_from(stream, starts[-1])[3] == 9
        engine.call("proceed")


def test_nothing_is_written_before_it_goes_on(engine: Engine) -> None:
    with session(engine) as guest:
        address = guest.map(2)
        requests = [guest.ask_read(address, 1 << 20) for _ in range(8)]
        until_called(engine, 8)
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 60.0) == ""
        assert engine.call("unsent")
        engine.call("proceed")
        assert all(guest.answer(request).status == 0 for request in requests)


def test_a_kernel_that_runs_is_waited_for_only_so_long(engine: Engine) -> None:
    with session(engine) as guest:
        flag = guest.map(1)
        function = kernels.bind(guest, "wait_for")
        guest.launch(function, struct.pack("<QQ", flag, flag + 4), block=(1, 1, 1))
        stream = handle("stream", 0)
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
        guest.call("cuStreamQuery", hStream=stream)
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 0.05) == "the device is still at work after 0.05 s"
        engine.call("proceed")
        guest.write(flag, struct.pack("<I", 1), stream)
        guest.sync()
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 60.0) == ""
        engine.call("proceed")


def test_it_says_whether_its_guest_waits_for_the_device(engine: Engine) -> None:
    """Who does is not idle (test_limits.py)."""
    with session(engine) as guest:
        flag = guest.map(1)
        stream = handle("stream", 0)
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
        guest.launch(kernels.bind(guest, "wait_for"), struct.pack("<QQ", flag, flag + 4), block=(1, 1, 1))
        waiting = guest.ask("cuCtxSynchronize")
        wait_until(lambda: engine.call("waiting"), "a guest that waits")
        guest.write(flag, struct.pack("<I", 1), stream)
        assert guest.answer(waiting).status == 0
        wait_until(lambda: not engine.call("waiting"), "one that does not")


@pytest.mark.parametrize("resumable", [False, True])
def test_who_leaves_says_nothing(engine: Engine, resumable: bool) -> None:
    guest = engine.session(resumable=resumable)
    guest.sync()
    assert engine.call("hold", 60.0)
    engine.call("leave")
    assert engine.ended() == ("moved", True)
    assert is_silent(guest)
    guest.socket.sendall(b"and on")
    assert engine.theirs.recv(6) == b"and on"


def test_the_end_of_a_session_ends_its_move(engine: Engine) -> None:
    guest = engine.session()
    guest.map(4)
    guest.sync()
    engine.call("snapshot")
    engine.call("alias")
    guest.close()
    assert engine.ended() == ("closed", True)
    for method, arguments in (("snapshot", ()), ("tail", ()), ("alias", ()), ("images", ()), ("leave", ())):
        with pytest.raises(RuntimeError, match="SessionOver: the session is over"):
            engine.call(method, *arguments)
    assert not engine.call("hold", 0.05)
    with session(engine) as guest:  # and it is as good as new
        assert engine.call("snapshot") == []
        assert engine.call("alias") == []


def test_what_needs_a_session_that_stands_still_says_so(engine: Engine) -> None:
    with session(engine) as guest:
        guest.sync()
        for method, arguments in (
            ("unread", ()),
            ("unsent", ()),
            ("events", ()),
            ("drain", (1.0,)),
            ("leave", ()),
        ):
            with pytest.raises(RuntimeError, match="ValueError: the session is not held"):
                engine.call(method, *arguments)


def test_the_second_mapping_survives_the_first(engine: Engine) -> None:
    with session(engine) as guest:
        address = guest.map(2)
        guest.write(address, b"mine" * 1000)
        guest.sync()
        assert engine.call("alias") == [(address, 2 * guest.granularity)]
        before = engine.call("hashes", [address, address + guest.granularity])
        guest.send("sessionMemUnmap", address=address, size=2 * guest.granularity)
        guest.map(1)
        guest.sync()
        assert engine.call("read", address, 8) == b"minemine"
        assert engine.call("hashes", [address, address + guest.granularity]) == before
        assert engine.call("alias") == [(address, guest.granularity)]
        assert engine.call("read", address, 8) == bytes(8)
        for wrong in (address + guest.granularity, guest.window + guest.window_size, 0, (1 << 64) - 8):
            with pytest.raises(RuntimeError):
                engine.call("read", wrong, 8)
            with pytest.raises(RuntimeError):
                engine.call("share", wrong)
            with pytest.raises(RuntimeError):
                engine.call("hashes", [wrong])
        engine.call("drop_aliases")
        with pytest.raises(RuntimeError):
            engine.call("read", address, 8)


def test_launches_say_which_memory_is_hot(engine: Engine) -> None:
    with session(engine) as guest:
        cold, warm = guest.map(1), guest.map(2, at=1)
        function = kernels.bind(guest, "scale")
        engine.call("snapshot")
        assert engine.call("hot") == []
        guest.launch(function, struct.pack("<QI", warm + guest.granularity + 64, 1))
        guest.sync()
        assert cold != warm
        assert engine.call("hot") == [warm]
        assert engine.call("hot") == []


def test_moving_leaves_no_trace_in_the_counters(engine: Engine) -> None:
    with session(engine) as guest:
        address = guest.map(2)
        guest.sync()
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 60.0) == ""
        engine.call("proceed")
        before, calls = engine.call("stats"), engine.call("calls")
        engine.call("snapshot")
        engine.call("alias")
        engine.call("hashes", [address])
        assert engine.call("hold", 60.0)
        assert engine.call("drain", 60.0) == ""
        engine.call("proceed")
        after = engine.call("stats")
        before.pop("busy_nanoseconds"), after.pop("busy_nanoseconds")
        assert after == before
        assert engine.call("calls") == calls
        guest.send("cuDevicePrimaryCtxReset_v2", dev=0)  # takes the hashing kernels with it
        assert guest.sync().status == 0
        assert len(engine.call("hashes", [address])) == 16


def test_an_image_that_is_loaded_is_there(engine: Engine, tmp_path: Path) -> None:
    with session(engine) as guest:
        kernels.load(guest)
        guest.load(kernels.PTX + b"\0", handle("library", 1), b"x" * 32)  # not its hash: not loaded
        (image,) = engine.call("images")
        assert image[1] == kernels.PTX
        guest.send("cuLibraryUnload", library=kernels.LIBRARY)
        guest.sync()
        assert engine.call("images") == []
