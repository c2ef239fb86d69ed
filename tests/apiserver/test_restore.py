"""A session that comes from another engine; and sources that lie."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gpuferry.apiserver.end import CLOSED, revoked
from gpuferry.specs._generated import wire
from gpuferry.specs._generated.frames import CountedCalls, Frame, frame

from tests.apiserver import kernels, migrant
from tests.apiserver.engine import Engine
from tests.apiserver.guest import HEADER, Guest, encode, handle, operations
from tests.apiserver.migrant import PAGE

RESTORE = sorted(name for name, m in operations().items() if m.variant.restore)
STATE = wire.REQUESTS["sessionRestoreCounters"]
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
MOVED = frame(Frame.MOVED)


@pytest.fixture
def target(pair: tuple[Engine, Engine]) -> Engine:
    return pair[1]


@pytest.fixture
def link(target: Engine) -> Iterator[Guest]:
    """A session that is to be restored, one page of it mapped; lies do the target no harm."""
    link = target.session(restore=True)
    link.map()
    yield link
    files = open_files(target)
    link.socket.close()
    assert target.ended()[1]
    assert open_files(target) <= files
    again = target.session()
    assert again.sync().status == 0
    again.close()
    target.ended()


def open_files(engine: Engine) -> int:
    return len(os.listdir(f"/proc/{engine.process.pid}/fd"))


def moved(guest: Guest, connection: socket.socket) -> Guest:
    """The guest goes on, and notices nothing."""
    again = Guest(connection)
    again.__dict__.update({**guest.__dict__, "socket": connection})
    return again


def populate(guest: Guest) -> tuple[int, int]:
    """Some of everything; the address of data and a function that scales it."""
    address = guest.map(3)
    guest.write(address, struct.pack("<4I", 1, 2, 3, 4))
    guest.sync()
    function = kernels.bind(guest, "scale")
    guest.send("cuStreamCreateWithPriority", phStream=handle("stream", 1), flags=1, priority=0)
    guest.call("cuCtxSetLimit", limit=0, value=4096)
    guest.call("sessionGetGlobal", owner=kernels.LIBRARY, payload=b"variable")
    guest.launch(function, struct.pack("<QI", address, 10), stream=handle("stream", 1), block=(4, 1, 1))
    return address, function


def test_a_session_moves(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    guest = source.session()
    address, function = populate(guest)
    guest.sync()
    connection = source.theirs
    link = target.session(restore=True)
    migrant.move(source, target, link, connection)
    connection.close()
    assert guest.read(address, 16) == struct.pack("<4I", 10, 20, 30, 40)
    assert guest.read(address + PAGE, PAGE) == bytes(PAGE)
    guest.launch(function, struct.pack("<QI", address, 2), stream=handle("stream", 1), block=(4, 1, 1))
    assert guest.read(address, 16, handle("stream", 1)) == struct.pack("<4I", 20, 40, 60, 80)
    assert link.expect_end().text == ""
    guest.close()
    assert target.ended() == ("closed", True)


@pytest.mark.parametrize("resumable", [False, True])
def test_nothing_is_lost_on_the_way(pair: tuple[Engine, Engine], resumable: bool) -> None:
    """Calls not read, half a call, answers not sent, counters."""
    source, target = pair
    guest = source.session(resumable=resumable)
    address = guest.map(2)
    data = os.urandom(1 << 20)
    guest.write(address, data)
    guest.sync()
    requests = [guest.ask_read(address, len(data)) for _ in range(6)]
    last = encode("cuCtxSynchronize", 1000, 1, b"", {})
    guest.socket.sendall(last[:7])
    while source.call("stats")["calls_sync"] < 2:  # the rest is read here, or there
        time.sleep(0.001)
    connection = source.theirs
    link = target.session(restore=True, resumable=resumable)
    migrant.move(source, target, link, connection)
    connection.close()
    here = source.call("calls")
    guest.socket.sendall(last[7:])
    guest._waiting[1000] = "cuCtxSynchronize"
    replies = [guest.answer(request) for request in requests]
    assert all(reply.payload == data for reply in replies)
    assert guest.answer(1000).status == 0
    assert target.call("stats")["calls_sync"] == 8
    there = {op: counted for op, *counted in target.call("calls")}
    for op, *counted in here:
        assert all(now >= then for now, then in zip(there[op], counted, strict=True)), op
    ops = operations()
    for name, calls in {"sessionCopyIn": 1, "sessionCopyOut": 6, "cuCtxSynchronize": 2}.items():
        assert there[ops[name].variant.id][:2] == [calls, 0], name
    guest.socket.close()
    if resumable:
        target.call("end", CLOSED)
    assert target.ended()[1]


def test_an_error_that_was_not_told_is_told_there(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    guest = source.session()
    guest.send("cuStreamDestroy_v2", hStream=handle("stream", 9))
    while source.call("stats")["calls_async"] < 1:
        time.sleep(0.001)
    connection = source.theirs
    migrant.move(source, target, target.session(restore=True), connection)
    connection.close()
    synced = guest.sync()
    assert (synced.latched, synced.latched_op) == (400, operations()["cuStreamDestroy_v2"].variant.id)
    assert guest.sync().latched == 0
    guest.close()
    assert target.ended() == ("closed", True)


def test_it_can_move_on(pair: tuple[Engine, Engine]) -> None:
    """There and back: what was restored is a session like any other."""
    source, target = pair
    guest = source.session()
    address, function = populate(guest)
    guest.sync()
    connection = source.theirs
    here, there = source, target
    for _ in range(4):
        link = there.session(restore=True)
        migrant.move(here, there, link, connection)
        here, there = there, here
        guest.launch(function, struct.pack("<QI", address, 2), block=(4, 1, 1))
    assert guest.read(address, 4) == struct.pack("<I", 160)
    guest.close()
    connection.close()
    assert here.ended() == ("closed", True)


def test_without_a_socket_the_link_goes_on(target: Engine) -> None:
    """To another machine: the guest speaks by way of a relay until it follows."""
    link = target.session(restore=True)
    address = link.map()
    link.write(address, b"here")
    assert link.call("sessionRestoreDone", mapped_bytes=PAGE).status == 0
    assert link.call("sessionRestoreTakeOver", flags=0).status == 0
    assert link.read(address, 4) == b"here"
    assert not target.call("following")
    link.socket.sendall(MOVED)
    assert link.socket.recv(HEADER.size, socket.MSG_WAITALL) == MOVED
    assert link.expect_end().text == ""
    assert target.call("following")
    ours, theirs = socket.socketpair()
    with theirs:
        assert not target.call("resume", b"p" * 32, 7, descriptors=[os.dup(theirs.fileno())])
        assert target.call("resume", b"p" * 32, 0, descriptors=[os.dup(theirs.fileno())])
    resumed = HEADER.unpack(ours.recv(HEADER.size))
    assert resumed[1] == Frame.RESUMED
    assert ours.recv(resumed[0] - HEADER.size) == b"p" * 32 + bytes(8)
    guest = moved(link, ours)
    assert guest.read(address, 4) == b"here"
    assert not target.call("following")
    guest.close()
    assert target.ended() == ("closed", True)


def comes_back(target: Engine, link: Guest, received: int) -> tuple[Guest, int]:
    """Another connection of a guest that has so many bytes; and how many the server has."""
    while not target.call("taken_over"):
        time.sleep(0.001)
    ours, theirs = socket.socketpair()
    with theirs:
        assert target.call("resume", b"p" * 32, received, descriptors=[os.dup(theirs.fileno())])
    head = HEADER.unpack(ours.recv(HEADER.size, socket.MSG_WAITALL))
    assert head[1] == Frame.RESUMED
    body = ours.recv(head[0] - HEADER.size, socket.MSG_WAITALL)
    return moved(link, ours), int.from_bytes(body[32:], "little")


def received_counts(link: Guest, received: int) -> None:
    """A session that outlives its connection, and has said nothing."""
    link.send("sessionRestoreResumable", received=received, told=0, begin=0, boundary=0, written=0)


@pytest.mark.parametrize("size", range(HEADER.size + 1))
@pytest.mark.parametrize("busy", [False, True], ids=["reading", "busy"])
def test_a_guest_that_takes_leave_by_half(target: Engine, busy: bool, size: int) -> None:
    """Its connection breaks after so many bytes of its last frame, which are no part of its stream. A busy
    server is not reading: it cannot see the end of the connection."""
    call = encode("cuCtxSynchronize", 9, 1, b"", {})
    output = HEADER.pack(HEADER.size, 1, 1, 77, 0) * ((2 << 20) // HEADER.size if busy else 0)
    link = target.session(restore=True, resumable=True)
    received_counts(link, len(call) + size)
    link.send("sessionRestoreInput", payload=call + MOVED[:size])
    for at in range(0, len(output), 1 << 20):
        link.send("sessionRestoreOutput", head=0, payload=output[at : at + (1 << 20)])
    assert link.call("sessionRestoreDone", mapped_bytes=0).status == 0
    assert link.call("sessionRestoreTakeOver", flags=0).status == 0
    if not busy and size < HEADER.size:  # it has answered, and waits for more
        link._waiting[9] = "cuCtxSynchronize"
        assert link.answer(9).status == 0
    guest, received = comes_back(target, link, 0)
    assert received == len(call)
    assert guest._exactly(len(output)) == output
    guest._waiting[9] = "cuCtxSynchronize"
    assert guest.answer(9).status == 0
    for _ in range(3):
        assert guest.sync().status == 0
    again, received = comes_back(target, guest, 0)
    assert received == 4 * len(call)
    guest.socket.close()
    again.socket.close()
    target.call("end", CLOSED)
    assert target.ended() == ("closed", True)


@pytest.mark.parametrize("split", range(1, HEADER.size))
def test_a_last_frame_in_two_parts(target: Engine, split: int) -> None:
    """What was there when the session came counts as little as what comes afterwards."""
    link = target.session(restore=True, resumable=True)
    received_counts(link, split)
    link.send("sessionRestoreInput", payload=MOVED[:split])
    assert link.call("sessionRestoreDone", mapped_bytes=0).status == 0
    assert link.call("sessionRestoreTakeOver", flags=0).status == 0
    while not target.call("taken_over"):
        time.sleep(0.001)
    assert target.call("arriving")
    link.socket.sendall(MOVED[split:])
    assert link.expect_end().text == ""
    assert target.call("following")
    guest, received = comes_back(target, link, 0)
    assert received == 0
    assert guest.sync().status == 0
    assert not target.call("arriving")
    guest.socket.close()
    target.call("end", CLOSED)
    assert target.ended() == ("closed", True)


def test_a_guest_that_never_comes(target: Engine) -> None:
    """What it would have been told the next guest is not told."""
    link = target.session(restore=True)
    assert link.call("sessionRestoreDone", mapped_bytes=0).status == 0
    assert link.call("sessionRestoreTakeOver", flags=0).status == 0
    link.socket.sendall(MOVED)
    assert link.socket.recv(HEADER.size, socket.MSG_WAITALL) == MOVED
    assert link.expect_end().text == ""
    target.call("end", revoked("it was waited for long enough"))
    assert target.ended() == ("revoked: it was waited for long enough", True)
    again = target.session()
    assert again.sync().status == 0
    again.close()
    assert target.ended() == ("closed", True)


@pytest.mark.parametrize("op", RESTORE)
def test_guests_restore_nothing(target: Engine, op: str) -> None:
    guest = target.session()
    values: dict[str, Any] = {f.name: 1 for f in operations()[op].request}
    guest.socket.sendall(encode(op, 1, 1, b"", values))
    wanted = f"malformed: operation {operations()[op].variant.id}: no such operation"
    assert guest.expect_end().text == wanted
    assert target.ended() == (wanted, True)


@pytest.mark.parametrize("op", RESTORE)
def test_nor_does_a_session_that_is_here(target: Engine, op: str) -> None:
    link = target.session(restore=True)
    assert link.call("sessionRestoreDone", mapped_bytes=0).status == 0
    assert link.call("sessionRestoreTakeOver", flags=0).status == 0
    values: dict[str, Any] = {f.name: 1 for f in operations()[op].request}
    link.socket.sendall(encode(op, 9, 1, b"", values))
    assert link.expect_end().text.endswith("no such operation")
    assert target.ended()[1]


def shared(link: Guest, descriptor: int, address: int | None = None, size: int = PAGE) -> int:
    where = link.window if address is None else address
    return migrant.ask_with(link, "sessionRestoreShare", descriptor, address=where, size=size).status


def memfd(size: int, seals: int = 0, name: str = "gpuferry-sim-") -> int:
    descriptor = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def test_descriptors_that_are_no_memory(link: Guest) -> None:
    read_end, write_end = os.pipe()
    for descriptor in (read_end, memfd(PAGE), memfd(PAGE, SEALS), memfd(0), os.open("/", os.O_RDONLY)):
        assert shared(link, descriptor) != 0
        os.close(descriptor)
    os.close(write_end)
    assert link.sync().status == 0


def test_memory_that_shrinks_or_is_too_small(pair: tuple[Engine, Engine], link: Guest) -> None:
    """Whoever shares memory cannot take it back: SIGBUS would end the target."""
    source, _ = pair
    guest = source.session()
    guest.map()
    guest.sync()
    source.call("alias")
    descriptor = source.call("share", guest.window)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    assert shared(link, descriptor, size=2 * PAGE) != 0
    for address in (link.window + 1, link.window + link.window_size, 0, link.window - PAGE, (1 << 64) - PAGE):
        assert shared(link, descriptor, address) != 0
    assert shared(link, descriptor) == 0
    assert shared(link, descriptor) == 0  # again: in place of the first
    link.send("sessionRestoreCopy", address=link.window, size=PAGE)
    assert link.sync().latched == 0
    os.close(descriptor)
    guest.close()
    source.ended()


def test_copies_of_what_is_not_there(link: Guest) -> None:
    window = link.window
    for address, size in (
        (window, PAGE),
        (window + 5 * PAGE, PAGE),
        (window, 0),
        (window, 1 << 63),
        (0, PAGE),
    ):
        link.send("sessionRestoreCopy", address=address, size=size)
        assert link.sync().latched == 1


def test_hashes_of_what_is_not_there(link: Guest) -> None:
    window = link.window
    assert len(link.call("sessionRestoreHash", address=window, pages=1).payload) == 16
    for address, pages in ((window, 2), (window + 8, 1), (window, 0), (0, 1), (window, 1 << 18)):
        assert link.call("sessionRestoreHash", address=address, pages=pages).status == 1


def test_events_that_are_none(link: Guest) -> None:
    link.send("cuEventCreate", phEvent=handle("event", 0), Flags=0)
    for event, age, wanted in (
        (handle("event", 1), 0, 400),
        (handle("event", 0), -1, 1),
        (handle("event", 0), 5, 0),
    ):
        link.send("sessionRestoreEvent", event=event, flags=0, age=age)
        assert link.sync().latched == wanted


def test_it_is_not_done(link: Guest) -> None:
    assert link.call("sessionRestoreDone", mapped_bytes=2 * PAGE).status == 1
    link.send("cuStreamDestroy_v2", hStream=handle("stream", 0))
    reply = link.call("sessionRestoreDone", mapped_bytes=PAGE)
    assert (reply.status, reply.latched) == (1, 400)


def test_the_guest_is_no_socket(link: Guest) -> None:
    assert link.call("sessionRestoreDone", mapped_bytes=PAGE).status == 0
    descriptor = memfd(PAGE)
    assert migrant.ask_with(link, "sessionRestoreTakeOver", descriptor, flags=1).status == 1
    os.close(descriptor)
    assert link.sync().status == 0  # and it may still be given up


MANY = 0xFFFFFFFF
COUNTERS = {field.name: 0 for field in operations()["sessionRestoreCounters"].request}
MALFORMED: dict[str, tuple[str, dict[str, int], bytes]] = {
    "memory without a descriptor": ("sessionRestoreShare", {"address": 1 << 45, "size": PAGE}, b""),
    "too many hashes": ("sessionRestoreHash", {"address": 1 << 45, "pages": 1 << 19}, b""),
    "counters of another size": ("sessionRestoreState", {"latched": 0, "latched_op": 0}, bytes(100)),
    "an operation that is none": ("sessionRestoreState", {"latched": 0, "latched_op": 1 << 20}, bytes(100)),
    "counters that are not there": ("sessionRestoreCounters", COUNTERS | {"operations": 1}, b""),
    "more counters than are there": (
        "sessionRestoreCounters",
        COUNTERS | {"operations": 0xFFFFFFFF},
        bytes(36),
    ),
    "counters of no operation": (
        "sessionRestoreCounters",
        COUNTERS | {"operations": 1},
        CountedCalls(1 << 16, 1, 0, 0, 0).pack(),
    ),
    "an operation that failed and is none": (
        "sessionRestoreCounters",
        COUNTERS | {"latched_op": 1 << 20},
        b"",
    ),
    "counts of a session that ends with its connection": (
        "sessionRestoreResumable",
        {"received": 0, "told": 0, "begin": 0, "boundary": 0, "written": 0},
        b"",
    ),
    "take over before it is done": ("sessionRestoreTakeOver", {"flags": 0}, b""),
    "flags that are none": ("sessionRestoreTakeOver", {"flags": 4}, b""),
}


@pytest.mark.parametrize("lie", MALFORMED)
def test_what_no_source_says(link: Guest, lie: str) -> None:
    op, values, payload = MALFORMED[lie]
    link.socket.sendall(encode(op, 1, 1, payload, dict(values)))
    assert link.expect_end().text.startswith(f"malformed: operation {operations()[op].variant.id}: ")


@pytest.mark.parametrize(
    ("head", "output"),
    [
        (0, b"x"),
        (5, b"1234"),
        (0, HEADER.pack(17, 1, 1, 1, 0)),
        (0, HEADER.pack(3, 1, 1, 1, 0)),
        (1, bytes(30)),
    ],
)
def test_output_that_is_not_made_of_frames(link: Guest, head: int, output: bytes) -> None:
    link.send("sessionRestoreOutput", head=head, payload=output)
    assert link.call("sessionRestoreDone", mapped_bytes=PAGE).status == 0
    link.socket.sendall(encode("sessionRestoreTakeOver", 77, 0, b"", {"flags": 0}))
    assert link.expect_end().text.endswith("the output is not made of frames")


@pytest.mark.parametrize(
    ("told", "begin", "boundary", "written"),
    [
        (6, 0, 0, 0),
        (0, 1, 0, 1),
        (0, 0, 0, 17),
        (0, 0, 17, 0),
        (0, 2, 1, 2),
        (0, 0, 1, 0),
        (0, 1 << 63, 0, 0),
    ],
)
def test_counts_that_cannot_be(target: Engine, told: int, begin: int, boundary: int, written: int) -> None:
    link = target.session(restore=True, resumable=True)
    link.send(
        "sessionRestoreResumable", received=5, told=told, begin=begin, boundary=boundary, written=written
    )
    link.send("sessionRestoreOutput", head=0, payload=HEADER.pack(16, 1, 1, 1, 0))
    assert link.call("sessionRestoreDone", mapped_bytes=0).status == 0
    link.socket.sendall(encode("sessionRestoreTakeOver", 77, 0, b"", {"flags": 0}))
    assert link.expect_end().text.endswith("the output is not made of frames")
    assert target.ended()[1]


def test_more_input_than_fits(link: Guest) -> None:
    piece = bytes(128 << 10)
    with contextlib.suppress(ConnectionError):  # it hears of it at last while it sends
        for _ in range((32 << 20) // len(piece) + 1):
            link.send("sessionRestoreInput", payload=piece)
    assert link.expect_end().text.endswith("more input than a session can have")


def test_descriptors_that_nobody_asked_for(link: Guest, target: Engine) -> None:
    files = open_files(target)
    descriptor = memfd(PAGE)
    frame = encode("sessionFence", 0, 1, b"", {})
    for _ in range(40):
        socket.send_fds(link.socket, [frame], [descriptor] * 4)
    os.close(descriptor)
    assert link.sync().status == 0
    assert open_files(target) <= files + 64 + 8


def test_a_link_that_ends_is_the_end(pair: tuple[Engine, Engine]) -> None:
    """The target is as good as new, and the source goes on."""
    source, target = pair
    guest = source.session()
    address, _ = populate(guest)
    guest.sync()
    link = target.session(restore=True)
    migrant.rebuild(source, link)
    migrant.copy(source, link)
    link.socket.close()
    assert target.ended() == ("connection lost", True)
    source.call("forget_tail")
    source.call("drop_aliases")
    assert guest.read(address, 4) == struct.pack("<I", 10)
    guest.close()
    assert source.ended() == ("closed", True)


def test_bytes_behind_take_over_are_refused(link: Guest) -> None:
    """The guest's bytes come from the guest's socket."""
    assert link.call("sessionRestoreDone", mapped_bytes=PAGE).status == 0
    ours, theirs = socket.socketpair()
    frames = encode("sessionRestoreTakeOver", 50, 0, b"", {"flags": 1}) + encode(
        "sessionFence", 0, 1, b"", {}
    )
    with ours, theirs:
        socket.send_fds(link.socket, [frames], [theirs.fileno()])
        assert link.expect_end().text.endswith("no socket beside it, or more behind it")
        assert not select.select([ours], [], [], 0.1)[0]
