"""Between two devices of one machine: everything is there afterwards, at the same addresses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from gpuferry.specs._generated import migration_pb2

from tests.apiserver import kernels, links
from tests.apiserver.guest import handle
from tests.apiserver.server import Server
from tests.migration.moving import (
    MEMORY,
    PAGE,
    PRECOPY,
    STOP,
    Faulty,
    Work,
    close,
    devices,
    expect,
    move,
    offer,
    order_move,
    settled,
)
from tests.resume.guest import counting


@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_everything_is_there(source: Server, destination: Server, strategy: migration_pb2.Strategy) -> None:
    guest = source.connect()
    work = Work(guest)
    moved = move(source, destination, guest.session, strategy)
    settled(source, destination, moved)
    work.check()
    assert moved.report.strategy == strategy
    assert moved.report.mapped_bytes == work.pages << 21
    assert moved.report.copied_bytes >= moved.report.mapped_bytes
    assert moved.report.pause_bytes == (moved.report.mapped_bytes if strategy == STOP else 0)
    assert 0 < moved.report.pause_seconds <= moved.report.seconds
    close(guest, destination)


@pytest.mark.system
@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_there_and_back_again(source: Server, destination: Server, strategy: migration_pb2.Strategy) -> None:
    guest = source.connect()
    work = Work(guest)
    here, there = source, destination
    for _ in range(4):
        settled(here, there, move(here, there, guest.session, strategy))
        work.check()
        here, there = there, here
    close(guest, here)


@pytest.mark.system
@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_devices_that_do_not_reach_each_other(tmp_path: Path, strategy: migration_pb2.Strategy) -> None:
    """Contents are staged in host memory."""
    apart = devices(MEMORY) | {"GPUFERRY_SIM_PEERS": "0"}
    with Server(tmp_path / "one", 0, **apart) as here, Server(tmp_path / "other", 1, **apart) as there:
        here.ready()
        there.ready()
        guest = here.connect()
        work = Work(guest)
        for _ in range(3):
            settled(here, there, move(here, there, guest.session, strategy))
            work.check()
            here, there = there, here
        close(guest, here)


def test_what_a_guest_has_and_did_not_acknowledge(source: Server, destination: Server) -> None:
    """Is kept for a connection that breaks, and not sent again while it does not."""
    guest = counting(source.connect(resume_seconds=60))
    work = Work(guest)
    for i, page in enumerate(work.contents):
        assert guest.read(work.memory + i * PAGE, PAGE) == page
    settled(source, destination, move(source, destination, guest.session, resume_seconds=60))
    work.check()
    close(guest, destination)


def test_memory_comes_and_goes_meanwhile(faulty: Faulty, destination: Server) -> None:
    """What is mapped, unmapped, mapped anew and written while memory is copied is what is there then."""
    guest = faulty.connect()
    work = Work(guest, pages=8)
    held = faulty.at("precopy!")
    link = offer(destination, guest.session)
    order_move(faulty, [link], guest.session, PRECOPY, local={"device": 1})
    held.wait()
    guest.send("sessionMemUnmap", address=work.memory, size=8 * PAGE)
    assert guest.map(8) == work.memory
    for i in (1, 5):
        guest.write(work.memory + i * PAGE, work.contents[i])
    again = guest.map(2, at=20)
    guest.write(again, work.contents[6] * 2)
    gone = guest.map(1, at=30)
    guest.write(gone, work.contents[7])
    guest.send("sessionMemUnmap", address=gone, size=PAGE)
    assert guest.sync().latched == 0
    held.go()
    moved = expect(faulty, "moved").moved
    settled(faulty, destination, moved)
    for i in range(8):
        expected = work.contents[i] if i in (1, 5) else bytes(PAGE)
        assert guest.read(work.memory + i * PAGE, PAGE) == expected, i
    assert guest.read(again, 2 * PAGE) == work.contents[6] * 2
    assert guest.call("sessionCopyOut", stream=0, address=gone, pitch=0, width=4, rows=1).status != 0
    assert moved.report.mapped_bytes == 10 * PAGE
    close(guest, destination)


@pytest.mark.system
def test_only_what_changed_is_copied_in_the_pause(faulty: Faulty, destination: Server) -> None:
    guest = faulty.connect()
    work = Work(guest, pages=40)
    held = faulty.at("precopy!")
    link = offer(destination, guest.session)
    order_move(faulty, [link], guest.session, PRECOPY, local={"device": 1})
    held.wait()
    work.scale(7)
    held.go()
    moved = expect(faulty, "moved").moved
    settled(faulty, destination, moved)
    work.check()
    assert moved.report.pause_bytes == PAGE
    assert moved.report.rounds == 1
    close(guest, destination)


def test_what_the_program_sent_ahead_and_has_not_read_yet(faulty: Faulty, destination: Server) -> None:
    """Calls that no server has looked at, and replies that the program has not taken, go along."""
    guest = faulty.connect()
    work = Work(guest, pages=8)
    early = [guest.ask_read(work.memory + i * PAGE, PAGE) for i in range(8)]  # more than sockets hold
    held = faulty.at("drain!")
    link = offer(destination, guest.session)
    order_move(faulty, [link], guest.session, STOP, local={"device": 1})
    held.wait()
    late = [guest.ask_read(work.memory + i * PAGE, PAGE) for i in range(8)]
    held.go()
    settled(faulty, destination, expect(faulty, "moved").moved)
    for request, page in zip(early + late, work.contents * 2, strict=True):
        assert guest.answer(request).payload == page
    assert guest.order == sorted(guest.order)
    work.check()
    close(guest, destination)


def test_code_comes_and_goes_meanwhile(faulty: Faulty, destination: Server) -> None:
    """What was unloaded has no variables any more, what was loaded has."""
    guest = faulty.connect()
    work = Work(guest)
    other, digest = handle("library", 5), hashlib.sha256(kernels.PTX).digest()
    assert guest.call("sessionLoadImage", hash=digest, handle=other, size=len(kernels.PTX)).status == 0
    held = faulty.at("precopy!")
    link = offer(destination, guest.session)
    order_move(faulty, [link], guest.session, PRECOPY, local={"device": 1})
    held.wait()
    assert guest.call("cuLibraryUnload", library=other).status == 0
    third = handle("library", 6)
    assert guest.call("sessionLoadImage", hash=digest, handle=third, size=len(kernels.PTX)).status == 0
    variable = guest.call("sessionGetGlobal", owner=third, payload=b"variable").values["address"]
    guest.write(variable, b"changed!")
    assert guest.sync().latched == 0
    held.go()
    settled(faulty, destination, expect(faulty, "moved").moved)
    assert guest.read(variable, 8) == b"changed!"
    work.check()
    close(guest, destination)


COMPLETE, UNRESOLVED, INVALID_VALUE, INVALID_PTX = handle("link", 1), handle("link", 2), 1, 218
LINKED = handle("library", 7)


@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_links_that_are_not_complete_and_that_are(
    source: Server, destination: Server, strategy: migration_pb2.Strategy
) -> None:
    """What was added is there, what was refused is not, and what is complete stays so."""
    guest = source.connect()
    work = Work(guest)
    assert links.create(guest).status == 0
    assert links.add(guest, links.CALLER, name=b"the caller").status == 0
    assert links.add(guest, b"nonsense\0").status == INVALID_PTX
    assert links.add(guest, links.FUNCTION).status == 0
    assert links.create(guest, UNRESOLVED).status == 0
    assert links.add(guest, links.CALLER, name=b"the caller", link=UNRESOLVED).status == 0
    assert links.create(guest, COMPLETE).status == 0
    links.add_all(guest, COMPLETE)
    image = links.image_of(links.complete(guest, COMPLETE))
    settled(source, destination, move(source, destination, guest.session, strategy))
    work.check()
    rest = guest.call("sessionLinkImage", link=COMPLETE, offset=100, size=len(image) - 100)
    assert (rest.status, rest.payload) == (0, image[100:])
    assert links.add(guest, links.PRIVATE, link=COMPLETE).status == INVALID_VALUE
    unresolved = links.complete(guest, UNRESOLVED)
    assert unresolved.status != 0
    assert b"the caller" in unresolved.payload
    assert links.add(guest, links.WORD).status == 0
    linked = links.image_of(links.complete(guest))
    assert links.answer(guest, linked, LINKED, work.memory + PAGE) == links.ANSWER
    close(guest, destination)


def test_links_come_and_go_meanwhile(faulty: Faulty, destination: Server) -> None:
    guest = faulty.connect()
    work = Work(guest)
    assert links.create(guest, COMPLETE).status == 0
    links.add_all(guest, COMPLETE)
    held = faulty.at("precopy!")
    link = offer(destination, guest.session)
    order_move(faulty, [link], guest.session, PRECOPY, local={"device": 1})
    held.wait()
    guest.send("cuLinkDestroy", state=COMPLETE)
    assert links.create(guest).status == 0
    assert links.add(guest, links.CALLER).status == 0
    assert links.add(guest, links.FUNCTION).status == 0
    assert links.create(guest, handle("link", 2)).status == 0
    assert (
        links.add(guest, links.HEAD + b".global .u32 nobody_needs_it;\n\0", link=handle("link", 2)).status
        == 0
    )
    guest.send("cuLinkDestroy", state=handle("link", 2))
    held.go()
    settled(faulty, destination, expect(faulty, "moved").moved)
    work.check()
    assert guest.call("sessionLinkComplete", link=COMPLETE).status == 400
    assert links.add(guest, links.WORD).status == 0
    linked = links.image_of(links.complete(guest))
    assert links.answer(guest, linked, LINKED, work.memory + PAGE) == links.ANSWER
    close(guest, destination)
