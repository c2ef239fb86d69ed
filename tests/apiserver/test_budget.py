"""Host memory that a session makes its API server keep: counted, and refused beyond its grant."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver import kernels, links
from tests.apiserver.engine import Engine
from tests.apiserver.guest import PRIMARY, Guest, encode, handle

OUT_OF_MEMORY = 2
BUDGET = 4 << 20
LIBRARY = kernels.LIBRARY


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("budget") / "log") as engine:
        yield engine


@pytest.fixture
def guest(engine: Engine) -> Iterator[Guest]:
    """A session with little; it ends without a trace, and what it took is counted no more."""
    guest = engine.session(host_memory=BUDGET)
    guest.map()
    yield guest
    guest.close()
    assert engine.ended() == ("closed", True)
    assert engine.call("stats")["host_memory"] == 0


def streams(guest: Guest, number: int) -> int:
    stream = handle("stream", number)
    return guest.call("cuStreamCreateWithPriority", phStream=stream, flags=0, priority=0).status


def events(guest: Guest, number: int) -> int:
    guest.send("cuEventCreate", phEvent=handle("event", number), Flags=0)
    return guest.sync().latched


def contexts(guest: Guest, number: int) -> int:
    guest.send("cuCtxCreate_v2", pctx=handle("context", number + 1), flags=0, dev=0)
    return guest.sync().latched


def images(guest: Guest, number: int) -> int:
    """Pieces of images that are never loaded; the older ones are let go, and none is too many."""
    digest = hashlib.sha256(b"%d" % number).digest()
    guest.send("sessionImageData", hash=digest, size=BUDGET + number, offset=0, payload=bytes(8))
    return guest.sync().latched


def libraries(guest: Guest, number: int) -> int:
    image = kernels.PTX[:-1] + b"// %d\n\0" % number
    reply = guest.load(image, handle("library", number), hashlib.sha256(image).digest())[0]
    return reply.status or reply.latched


def kernels_of_a_library(guest: Guest, number: int) -> int:
    if number == 0:
        kernels.load(guest)
    call = {"function": handle("kernel", number), "owner": LIBRARY, "index": 0}
    return guest.call("sessionGetFunction", **call).status


def link_inputs(guest: Guest, number: int) -> int:
    if number == 0:
        assert links.create(guest).status == 0
    return links.add(guest, links.PRIVATE).status


EDGES = 1000  # in a frame


def edges(guest: Guest, number: int) -> int:
    graph, nodes = handle("graph_exec", 0), 400
    if number == 0:
        guest.send("sessionGraphBegin", exec=graph)
        for _ in range(nodes):
            guest.send("sessionGraphNode", exec=graph, kind=0, subject=0)
    pairs = itertools.islice(itertools.combinations(range(nodes), 2), EDGES * number, EDGES * (number + 1))
    payload = b"".join(struct.pack("<II8x", *pair) for pair in pairs)
    guest.send("sessionGraphEdges", exec=graph, count=EDGES, payload=payload)
    return guest.sync().latched


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (streams, BUDGET >> 10),
        (events, BUDGET >> 10),
        (contexts, BUDGET >> 17),
        (images, 1),
        (libraries, BUDGET >> 16),
        (kernels_of_a_library, BUDGET >> 10),
        (link_inputs, BUDGET >> 17),
        (edges, (BUDGET >> 6) // EDGES),
    ],
)
def test_what_lasts_is_bounded(guest: Guest, make: Callable[[Guest, int], int], most: int) -> None:
    """It is refused before it is done, and what is there goes on."""
    number = 0
    while (status := make(guest, number)) == 0:
        number += 1
        assert number <= most
    assert status == OUT_OF_MEMORY
    guest.write(guest.window, b"goes on")
    assert guest.read(guest.window, 7) == b"goes on"


def test_what_ends_makes_room(guest: Guest) -> None:
    for _ in range(2):
        number = 0
        while streams(guest, number) == 0:
            number += 1
        assert number > 1000
        for each in range(number):
            guest.send("cuStreamDestroy_v2", hStream=handle("stream", each))
        assert guest.sync().latched == 0


def test_replies_that_nobody_acknowledges_count(tmp_path: Path) -> None:
    """The log of a session that may be resumed: 5.9 million questions took 139 MiB."""
    with Engine(tmp_path / "log") as engine:
        guest = engine.session(resumable=True, host_memory=BUDGET)
        before = engine.call("stats")["host_memory"]
        for _ in range(20_000):
            guest.send("sessionFence")
        for _ in range(20_000):
            guest.answer(guest.ask("cuCtxSynchronize"))
        assert engine.call("stats")["host_memory"] > before + (256 << 10)
        guest.close()


def padded(text: bytes, size: int) -> bytes:
    """The same PTX, of so many bytes."""
    return text[:-1] + b"//" + b"a" * (size - len(text) - 3) + b"\n\0"


# 300 KiB, and so many statements that what comes behind it has begun before it is linked.
LONG = (
    links.HEAD
    + b".visible .func unused ()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 7;\n"
    + b"add.u32 %r1, %r1, %r1;\n" * 13_000
    + b"ret;\n}\n\0"
)


def arrives_beside_a_link(engine: Engine) -> bool:
    """Whether an image is all here, in the middle of which a link was completed whose image found no room."""
    guest = engine.session(host_memory=BUDGET)
    assert links.create(guest).status == 0
    for image in (links.CALLER, links.FUNCTION, links.WORD):
        assert links.add(guest, image).status == 0
    digest = links.ship(guest, LONG)
    assert guest.sync().latched == 0
    left = BUDGET - engine.call("stats")["host_memory"] - len(LONG)
    image = padded(kernels.PTX, left - (220 << 10))
    piece: dict[str, Any] = {"hash": hashlib.sha256(image).digest(), "size": len(image)}
    rest = encode("sessionImageData", 0, PRIMARY, image[100:], {**piece, "offset": 100})
    guest.send("sessionImageData", **piece, offset=0, payload=image[:100])
    added = links.ask(guest, digest, len(LONG))
    linked = guest.ask("sessionLinkComplete", link=links.LINK)
    guest.socket.sendall(rest[: len(rest) // 2])
    assert guest.answer(added).status == guest.answer(linked).status == 0
    guest.socket.sendall(rest[len(rest) // 2 :])
    known = guest.call("sessionLoadImage", **piece, handle=LIBRARY).values["known"]
    guest.close()
    assert engine.ended() == ("closed", True)
    return bool(known)


def test_an_image_does_not_go_while_it_arrives(engine: Engine) -> None:
    """Its memory was freed, and then written to.

    A link may be complete before the piece begins: then the image goes, and rightly, but not each time.
    """
    assert any(arrives_beside_a_link(engine) for _ in range(20))


def test_an_image_that_was_let_go_comes_back_as_large_as_it_was(engine: Engine, guest: Guest) -> None:
    """What is loaded of it is counted by its size: unloading what had grown meanwhile took the count of all
    else away, and the guest could have made the server keep what it liked.
    """
    digest = hashlib.sha256(kernels.PTX).digest()
    kernels.load(guest)
    assert images(guest, 0) == OUT_OF_MEMORY  # for which all others were let go
    assert (
        guest.call("sessionLoadImage", hash=digest, handle=LIBRARY, size=len(kernels.PTX)).values["known"]
        == 0
    )
    counted = engine.call("stats")["host_memory"]
    guest.send("sessionImageData", hash=digest, size=BUDGET // 2, offset=0, payload=bytes(8))
    assert guest.sync().latched == OUT_OF_MEMORY
    assert engine.call("stats")["host_memory"] == counted
    guest.send("sessionImageData", hash=digest, size=len(kernels.PTX), offset=0, payload=kernels.PTX)
    again = guest.call("sessionLoadImage", hash=digest, handle=handle("library", 9), size=len(kernels.PTX))
    assert (again.status, again.values["known"]) == (0, 1)
