"""Host memory that a session makes its API server keep: counted, and refused beyond its grant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apiserver import kernels, links
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle

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
