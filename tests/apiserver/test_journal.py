"""The journal: its frames, given to another engine, make the same objects, which answer alike."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver import links, migrant
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, Reply, handle
from tests.apiserver.kernels import PTX

Call = tuple[str, dict[str, Any]]
HASH = hashlib.sha256(PTX).digest()
INPUT = hashlib.sha256(links.PRIVATE).digest()
SLOTS = st.integers(0, 2)
CONTEXTS = st.sampled_from([1, 1, 2, 3])
SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STACK = 0  # CU_LIMIT_STACK_SIZE


def owners() -> st.SearchStrategy[int]:
    return st.builds(handle, st.sampled_from(["module", "library"]), SLOTS)


def functions() -> st.SearchStrategy[int]:
    return st.builds(handle, st.sampled_from(["function", "kernel"]), SLOTS)


def call(op: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(op), st.fixed_dictionaries({**values, "context": CONTEXTS}))


def of(kind: str) -> st.SearchStrategy[int]:
    return st.builds(handle, st.just(kind), SLOTS, st.integers(0, 1))


PAGES = st.integers(0, 3)
MADE = st.builds(handle, st.just("context"), st.integers(1, 2))
CALLS = st.one_of(
    call("cuStreamCreateWithPriority", phStream=of("stream"), flags=st.integers(0, 1), priority=st.just(0)),
    call("cuStreamDestroy_v2", hStream=of("stream")),
    call("cuEventCreate", phEvent=of("event"), Flags=st.sampled_from([0, 2])),
    call("cuEventDestroy_v2", hEvent=of("event")),
    call("cuEventRecordWithFlags", hEvent=of("event"), hStream=of("stream") | st.just(0), flags=st.just(0)),
    call("sessionMemMap", page=PAGES, pages=st.integers(1, 2)),
    call("sessionMemUnmap", page=PAGES, pages=st.integers(1, 2)),
    call("sessionLoadImage", hash=st.just(HASH), handle=owners(), size=st.just(len(PTX))),
    call("sessionGetFunction", function=functions(), owner=owners(), index=st.integers(0, 2)),
    call("sessionGetModule", module=of("module"), library=of("library")),
    call("sessionGetGlobal", owner=owners(), payload=st.just(b"variable")),
    call("cuModuleUnload", hmod=of("module")),
    call("cuLinkCreate_v2", stateOut=of("link"), payload=st.just(links.NO_OPTIONS)),
    call(
        "sessionLinkAdd",
        link=of("link"),
        hash=st.just(INPUT),
        size=st.just(len(links.PRIVATE)),
        type=st.sampled_from([links.PTX, links.CUBIN]),  # the second one is refused
        name_size=st.just(0),
        payload=st.just(links.NO_OPTIONS),
    ),
    call("sessionLinkComplete", link=of("link")),
    call("cuLinkDestroy", state=of("link")),
    call("cuLibraryUnload", library=of("library")),
    call("cuCtxSetLimit", limit=st.sampled_from([STACK, 1]), value=st.sampled_from([1024, 2048])),
    call("cuCtxSetCacheConfig", config=st.integers(0, 2)),
    call(
        "cuFuncSetAttribute", hfunc=functions(), attrib=st.just(SHARED), value=st.sampled_from([1024, 2048])
    ),
    call(
        "cuKernelSetAttribute", kernel=of("kernel"), attrib=st.just(SHARED), val=st.just(512), dev=st.just(0)
    ),
    call("cuCtxCreate_v2", pctx=MADE, flags=st.just(0), dev=st.just(0)),
    call("cuCtxDestroy_v2", ctx=MADE),
    call("cuDevicePrimaryCtxReset_v2", dev=st.just(0)),
)


def make(guest: Guest, calls: list[Call]) -> None:
    """All of them are answered, some with an error."""
    for op, values in calls:
        given_values = dict(values)
        if "page" in given_values:
            given_values["address"] = guest.window + given_values.pop("page") * guest.granularity
            given_values["size"] = given_values.pop("pages") * guest.granularity
        guest.call(op, **given_values)


def answers(guest: Guest) -> list[tuple[int, dict[str, Any], bytes]]:
    """What can be asked of everything that may be there."""
    asked: list[Reply] = []
    for slot in range(3):
        for generation in range(2):
            for context in (1, 2, 3):
                stream, event = handle("stream", slot, generation), handle("event", slot, generation)
                asked.append(guest.call("cuStreamQuery", hStream=stream, context=context))
                asked.append(guest.call("cuEventQuery", hEvent=event, context=context))
        for kind in ("function", "kernel"):
            for context in (1, 2, 3):
                asked.append(
                    guest.call(
                        "cuOccupancyAvailableDynamicSMemPerBlock",
                        func=handle(kind, slot),
                        numBlocks=1,
                        blockSize=32,
                        context=context,
                    )
                )
        for generation in range(2):
            link = handle("link", slot, generation)
            asked.append(guest.call("sessionLinkImage", link=link, offset=0, size=64))
        for kind in ("module", "library"):
            asked.append(guest.call("sessionGetGlobal", owner=handle(kind, slot), payload=b"variable"))
    for page in range(5):
        address = guest.window + page * guest.granularity
        asked.append(guest.answer(guest.ask_read(address, 8)))
    return [(reply.status, reply.values, reply.payload) for reply in asked]


def end(guest: Guest, engine: Engine) -> None:
    guest.close()
    assert engine.ended() == ("closed", True)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.lists(CALLS, max_size=25), after=st.lists(CALLS, max_size=15))
def test_frames_make_the_same_session(
    pair: tuple[Engine, Engine], before: list[Call], after: list[Call]
) -> None:
    source, target = pair
    guest, link = source.session(), target.session(restore=True)
    guest.send("sessionImageData", hash=HASH, size=len(PTX), offset=0, payload=PTX)
    link.send("sessionImageData", hash=HASH, size=len(PTX), offset=0, payload=PTX)
    for one in (guest, link):
        links.ship(one, links.PRIVATE)
    make(guest, before)
    migrant.rebuild(source, link)
    make(guest, after)
    migrant.replay(link, source.call("tail"))
    assert target.call("snapshot") == source.call("snapshot")
    for event, flags, age in held_events(source):
        link.send("sessionRestoreEvent", event=event, flags=flags, age=age)
    for one in (guest, link):  # what was begun is over on both, or a query would tell them apart
        one.sync()
    assert answers(link) == answers(guest)
    end(guest, source)
    end(link, target)


def held_events(engine: Engine) -> list[tuple[int, int, int]]:
    assert engine.call("hold", 60.0)
    assert engine.call("drain", 60.0) == ""
    events: list[tuple[int, int, int]] = engine.call("events")
    engine.call("proceed")
    return events


def test_the_journal_is_as_long_as_the_state(pair: tuple[Engine, Engine]) -> None:
    source, _ = pair
    guest = source.session()
    for _ in range(50):
        guest.send("cuStreamCreateWithPriority", phStream=handle("stream", 0), flags=0, priority=0)
        guest.send("cuStreamDestroy_v2", hStream=handle("stream", 0))
        guest.call("cuCtxSetLimit", limit=STACK, value=1024)
        guest.map()
        guest.send("sessionMemUnmap", address=guest.window, size=guest.granularity)
    guest.sync()
    assert [migrant.operation(frame) for frame, _ in source.call("snapshot")] == ["cuCtxSetLimit"]
    end(guest, source)


def test_nothing_is_left_for_the_next_session(pair: tuple[Engine, Engine]) -> None:
    source, _ = pair
    guest = source.session()
    guest.map()
    guest.call("cuCtxSetLimit", limit=STACK, value=1024)
    guest.send("cuStreamCreateWithPriority", phStream=handle("stream", 0), flags=0, priority=0)
    end(guest, source)
    guest = source.session()
    guest.sync()
    assert source.call("snapshot") == []
    assert source.call("images") == []
    end(guest, source)


def test_calls_that_fail_are_not_kept(pair: tuple[Engine, Engine]) -> None:
    source, _ = pair
    guest = source.session()
    source.call("snapshot")
    guest.map(100)  # more than its quota
    guest.send("sessionMemUnmap", address=guest.window, size=guest.granularity)
    guest.call("cuCtxSetLimit", limit=99, value=1)
    guest.call("sessionLoadImage", hash=HASH, handle=handle("library", 0), size=len(PTX))  # not known
    guest.send("cuStreamDestroy_v2", hStream=handle("stream", 0))
    guest.sync()
    assert source.call("tail") == []
    assert source.call("snapshot") == []
    end(guest, source)


def test_an_event_stays_what_it_was(pair: tuple[Engine, Engine]) -> None:
    """Not recorded, recorded without a time, recorded with one: as on the source."""
    source, target = pair
    guest, link = source.session(), target.session(restore=True)
    first, second, untimed, unused = (handle("event", slot) for slot in range(4))
    for event, flags in ((first, 0), (second, 0), (untimed, 2), (unused, 0)):
        guest.send("cuEventCreate", phEvent=event, Flags=flags)
    guest.send("cuEventRecordWithFlags", hEvent=first, hStream=0, flags=0)
    guest.sync()
    guest.send("cuEventRecordWithFlags", hEvent=second, hStream=0, flags=0)
    guest.send("cuEventRecordWithFlags", hEvent=untimed, hStream=0, flags=0)
    guest.sync()
    migrant.rebuild(source, link)
    events = held_events(source)
    assert sorted(event for event, _, _ in events) == sorted([first, second, untimed])
    ages = {event: age for event, _, age in events}
    assert ages[first] > ages[second] > ages[untimed] == 0
    for event, flags, age in events:
        link.send("sessionRestoreEvent", event=event, flags=flags, age=age)

    def elapsed(of: Guest, start: int, end: int) -> Reply:
        return of.call("cuEventElapsedTime_v2", hStart=start, hEnd=end)

    there, here = elapsed(guest, first, second), elapsed(link, first, second)
    assert here.values["pMilliseconds"] == pytest.approx(there.values["pMilliseconds"], abs=1e-3)
    for other in (untimed, unused):
        assert elapsed(link, first, other).status == elapsed(guest, first, other).status != 0
    link.send("cuEventRecordWithFlags", hEvent=unused, hStream=0, flags=0)
    link.sync()
    since = elapsed(link, first, unused)
    assert since.values["pMilliseconds"] > ages[first] / 1e6
    backwards = elapsed(link, unused, first).values["pMilliseconds"]
    assert backwards == pytest.approx(-since.values["pMilliseconds"], rel=1e-3)
    # From here it moves on: the age of what came here grows.
    assert {e: a for e, _, a in held_events(target)}[first] > ages[first]
    end(guest, source)
    end(link, target)
