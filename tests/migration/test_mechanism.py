"""What needs no device: what is mapped, when precopy stops, which devices differ, who has the guest."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpuferry.migration import devices, frames, handover, mapped, targets
from gpuferry.migration.copy import ROUNDS, Precopy, choose, hot_last
from gpuferry.migration.errors import LinkBroken, Lost, Refused
from gpuferry.migration.frames import PAGE, RANGE, Kept
from gpuferry.migration.mapped import Mapped
from gpuferry.specs._generated import handover_pb2, migration_pb2
from gpuferry.specs._generated.frames import Device, DeviceLink

from codegen.load import load
from codegen.wire import messages

Custody = handover_pb2.Custody
STOP, PRECOPY, AUTO = (
    migration_pb2.STRATEGY_STOP,
    migration_pb2.STRATEGY_PRECOPY,
    migration_pb2.STRATEGY_AUTO,
)


def test_layouts_are_those_of_the_spec() -> None:
    found = {message.variant.symbol: message for message in messages(load())}
    for name, layout in {
        "sessionMemMap": frames.RANGE,
        "sessionMemUnmap": frames.RANGE,
        "sessionLoadImage": frames.LOAD_IMAGE,
        "sessionImageData": frames.IMAGE_DATA,
        "sessionGetGlobal": frames.HANDLE,
        "sessionCopyIn": frames.COPY_IN,
    }.items():
        assert found[name].request_size == layout.size, name
    assert found["sessionLoadImage"].reply_size == frames.LOADED.size
    first = found["cuCtxCreate_v2"].request[0]
    assert (first.name, first.type) == ("pctx", "u64")
    assert found["cuEventCreate"].request[0].type == "u64"


def test_the_answer_s_digest_leaves_out_the_compiler_s_log() -> None:
    load = frames.OPERATIONS["sessionLoadImage"]
    one = struct.pack("<4I", 1, 2, 4, 3) + b"tablelo"[:4] + b"log"
    other = struct.pack("<4I", 1, 2, 4, 0) + b"tabl"
    assert frames.digest(load, 0, one) == frames.digest(load, 0, other)
    assert frames.digest(load, 0, one) != frames.digest(load, 1, one)
    assert frames.digest(load, 0, one) != frames.digest(load, 0, one.replace(b"tabl", b"tab2"))
    assert frames.digest(9, 0, one) != frames.digest(9, 0, other)


def change(op: str, address: int, pages: int) -> Kept:
    return Kept(frames.pack(op, RANGE.pack(address * PAGE, pages * PAGE)), 0)


def test_what_frames_map() -> None:
    state = Mapped()
    state.apply([change("sessionMemMap", 0, 2), change("sessionMemMap", 4, 1), change("sessionMemMap", 7, 3)])
    assert state.mappings() == [(0, 2 * PAGE), (4 * PAGE, PAGE), (7 * PAGE, 3 * PAGE)]
    everything = state.mappings()
    assert state.fresh(everything[:2]) == everything[:2]
    assert state.fresh(everything) == everything[2:]
    changed = state.apply([change("sessionMemUnmap", 0, 5), change("sessionMemMap", 4, 1)])
    assert changed == [(0, 5 * PAGE), (4 * PAGE, PAGE)]
    assert state.mappings() == [(4 * PAGE, PAGE), (7 * PAGE, 3 * PAGE)]
    assert state.fresh(state.mappings()) == [(4 * PAGE, PAGE)]  # other memory than before
    assert state.total() == 4 * PAGE


def test_runs_of_pages() -> None:
    pages = [0, PAGE, 2 * PAGE, 5 * PAGE, 6 * PAGE]
    assert list(mapped.runs(pages, 10 * PAGE)) == [(0, 3 * PAGE), (5 * PAGE, 2 * PAGE)]
    assert list(mapped.runs(pages, 2 * PAGE)) == [(0, 2 * PAGE), (2 * PAGE, PAGE), (5 * PAGE, 2 * PAGE)]
    assert list(mapped.runs(pages, 10 * PAGE, frozenset([PAGE])))[:2] == [(0, PAGE), (PAGE, 2 * PAGE)]
    assert list(mapped.runs([], PAGE)) == []


@pytest.mark.parametrize(
    ("left", "rounds"),
    [
        ([0], 1),
        ([1000, 100, 10, 5], 4),
        ([1000, 990], 2),  # as fast as we are
        ([500, 2000], 2),
        ([2**i for i in range(20, 0, -1)], ROUNDS),
    ],
)
def test_precopy_stops(left: list[int], rounds: int) -> None:
    precopy = Precopy()
    for count in left:
        if not precopy.goes_on(count):
            break
    assert precopy.rounds == rounds


def test_the_strategy_that_is_used() -> None:
    large, small = 1 << 30, 1 << 20
    assert choose(AUTO, large, True) == PRECOPY
    assert choose(AUTO, small, True) == STOP
    assert choose(PRECOPY, small, True) == PRECOPY
    assert choose(STOP, large, True) == STOP
    assert choose(PRECOPY, large, False) == STOP


def test_what_kernels_use_comes_last() -> None:
    mappings = [(0, 2 * PAGE), (4 * PAGE, PAGE)]
    assert hot_last(mapped.pages(mappings), [0], mappings) == [4 * PAGE, 0, PAGE]


DEVICE = Device(b"a", bytes(16), 1 << 30, 0, -5, 256, (1,) * 256, (2,) * 8)
LINK = DeviceLink(1, (0,) * 8)
TERMS = devices.Terms(1, (1 << 40, 1 << 36), 1 << 30, PAGE, 13050, (DEVICE,), ())
SEVERAL = replace(TERMS, devices=(DEVICE, DEVICE), links=(LINK,) * 4)


def test_devices_that_are_alike_enough() -> None:
    elsewhere = list(DEVICE.attributes)
    for place in devices.PLACES:
        elsewhere[place] = 99
    other = DEVICE._replace(attributes=tuple(elsewhere))
    devices.compare(TERMS, replace(TERMS, devices=(other,), quota=1 << 31, session=9))
    devices.compare(SEVERAL, replace(SEVERAL, devices=(DEVICE, other)))


@pytest.mark.parametrize(
    ("difference", "reason"),
    [
        ({"name": b"b"}, "another device: b, here a"),
        ({"window": (1 << 41, 1 << 36)}, "another address window"),
        ({"granularity": 1}, "another memory granularity"),
        ({"driver_version": 12080}, "another driver version: 12080, here 13050"),
        ({"stream_priority_greatest": 0}, "another range of stream priorities"),
        (
            {"attributes": (1,) * 75 + (9,) + (1,) * 180},
            "device attribute 75 is 9 at the destination and 1 here",
        ),
        ({"limits": (2,) * 7 + (3,)}, "limit 7 of the device is 3"),
        ({"quota": (1 << 30) - 1}, "grants 1023 MiB, the session may use 1024 MiB"),
    ],
)
def test_devices_that_differ(difference: dict[str, Any], reason: str) -> None:
    """The only one, or the second of two."""
    of_device = {name: value for name, value in difference.items() if name in Device._fields}
    other = DEVICE._replace(**of_device)
    of_session = {name: value for name, value in difference.items() if name not in of_device}
    for terms in (TERMS, SEVERAL):
        there = replace(terms, devices=(*terms.devices[:-1], other), **of_session)
        with pytest.raises(Refused, match=reason):
            devices.compare(terms, there)


@pytest.mark.parametrize("link", [LINK._replace(can_access=0), LINK._replace(attributes=(1,) * 8)])
def test_devices_that_reach_each_other_otherwise(link: DeviceLink) -> None:
    with pytest.raises(Refused, match="another peer a"):
        devices.compare(SEVERAL, replace(SEVERAL, links=(LINK, link, LINK, LINK)))
    with pytest.raises(Refused, match="another number of devices: 2, here 1"):
        devices.compare(TERMS, SEVERAL)


def test_a_welcome_that_is_cut_short() -> None:
    with pytest.raises(LinkBroken):
        devices.of_welcome(bytes(100))


@pytest.mark.parametrize(
    ("stream", "head", "missing"),
    [
        (b"", b"", 0),
        (frames.HEADER.pack(20, 1, 0, 0, 0) + b"1234", b"", 0),
        (frames.HEADER.pack(20, 1, 0, 0, 0) + b"12", b"", 2),
        (frames.HEADER.pack(16, 1, 0, 0, 0) + b"\1\2\3", b"\1\2\3", 0),
    ],
)
def test_where_a_stream_breaks_off(stream: bytes, head: bytes, missing: int) -> None:
    assert targets.begun(stream) == (head, missing)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


HANDOVER = handover_pb2.Handover(session=3, reply_begun=7)


def test_the_keeper_has_the_guest(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    guest, program = socket.socketpair()

    def keep() -> None:
        given = handover.take(theirs)
        assert given is not None
        message, (held,) = given
        assert message == HANDOVER
        with held:
            held.send(b"hello")
        assert handover.say(theirs, Custody.TAKEN)

    with guest, program:
        thread = threading.Thread(target=keep)
        thread.start()
        handover.give(ours, HANDOVER, [guest.fileno()])
        thread.join()
        assert program.recv(10) == b"hello"


def test_a_keeper_that_is_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(LinkBroken, match="keeper"):
        handover.give(ours, HANDOVER, [ours.fileno()])


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([], LinkBroken),
        ([Custody.TAKING_OVER], Lost),
        ([Custody.TAKING_OVER, Custody.LOST], Lost),
        ([Custody.TAKING_OVER, Custody.REFUSED], Refused),
        ([Custody.REFUSED], Refused),
    ],
)
@pytest.mark.parametrize("dies", [False, True])
def test_a_keeper_that_does_not_have_it(
    pair: tuple[socket.socket, socket.socket], said: list[handover_pb2.Custody.Stage], error: type, dies: bool
) -> None:
    ours, theirs = pair
    for stage in said:
        assert handover.say(theirs, stage)
    if dies:
        theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(error):
        handover.give(ours, HANDOVER, [ours.fileno()], patience=0.1)


def test_a_keeper_that_comes_too_late_knows(pair: tuple[socket.socket, socket.socket]) -> None:
    """Either the source hears it, or it cannot be said."""
    ours, theirs = pair
    with pytest.raises(LinkBroken):
        handover.give(ours, HANDOVER, [ours.fileno()], patience=0.05)
    assert not handover.say(theirs, Custody.TAKEN)
    given = handover.take(theirs)
    assert given is not None
    given[1][0].close()


def test_a_word_at_the_last_moment_counts(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert handover.say(theirs, Custody.TAKEN)
    handover.give(ours, HANDOVER, [ours.fileno()], patience=-1)
