"""What is in the journal after each kind of change: which frames, in which order, for which context."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.specs._generated.frames import ReplyPrefix

from tests.apiserver import kernels, links, migrant
from tests.apiserver.engine import Engine
from tests.apiserver.guest import HEADER, Guest, encode, handle

PTX = b""".version 7.5
.target sm_80
.address_size 64
.global .align 4 .u32 v;
.global .align 4 .u32 vv;
.global .align 4 .u32 va;
.visible .entry nothing() { ret; }
\0"""
HASH = hashlib.sha256(PTX).digest()
LIBRARY, MODULE, KERNEL = handle("library", 0), handle("module", 0), handle("kernel", 0)
FUNCTION = handle("function", 0)
CONTEXT, THERE = handle("context", 1), 2  # and what headers say of it
SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STACK, PRINTF_FIFO = 0, 1
NOT_READY = 600
LONG_NAME = "n" * 4000
TAIL_LIMIT = 256 << 20
ANSWER = struct.Struct(HEADER.format + ReplyPrefix.LAYOUT.format[1:] + "QQ")


@pytest.fixture
def engine(pair: tuple[Engine, Engine]) -> Engine:
    return pair[0]


@pytest.fixture
def guest(engine: Engine) -> Iterator[Guest]:
    """Of a session with a second context."""
    guest = engine.session()
    must(guest, "cuCtxCreate_v2", pctx=CONTEXT, flags=0, dev=0)
    yield guest
    guest.close()
    assert engine.ended() == ("closed", True)


def must(guest: Guest, op: str, **values: object) -> None:
    assert guest.call(op, **values).status == 0, (op, values)


def entries(kept: list[migrant.Kept]) -> list[tuple[str, int]]:
    """Operations, each with the context in which it is to be replayed."""
    return [(migrant.operation(frame), HEADER.unpack_from(frame)[4]) for frame, _ in kept]


def of(op: str, kept: list[migrant.Kept]) -> list[int]:
    """Contexts of the frames of one operation."""
    return [context for name, context in entries(kept) if name == op]


def load(guest: Guest, owner: int, context: int = 1, image: bytes = PTX) -> None:
    digest = hashlib.sha256(image).digest()
    guest.send("sessionImageData", hash=digest, size=len(image), offset=0, payload=image)
    must(guest, "sessionLoadImage", hash=digest, handle=owner, size=len(image), context=context)


def kernel(guest: Guest) -> None:
    load(guest, LIBRARY)
    must(guest, "sessionGetFunction", function=KERNEL, owner=LIBRARY, index=0)


def get(guest: Guest, name: bytes, context: int = 1, owner: int = LIBRARY) -> int:
    """The address of a variable."""
    reply = guest.call("sessionGetGlobal", owner=owner, payload=name, context=context)
    assert reply.status == 0, name
    return int(reply.values["address"])


def test_what_is_set_on_an_object_is_set_in_its_context(engine: Engine, guest: Guest) -> None:
    load(guest, MODULE, context=THERE)
    must(guest, "sessionGetFunction", function=FUNCTION, owner=MODULE, index=0)
    must(guest, "cuFuncSetAttribute", hfunc=FUNCTION, attrib=SHARED, value=1024, context=1)
    kept = engine.call("snapshot")
    assert of("sessionLoadImage", kept) == of("cuFuncSetAttribute", kept) == [THERE]


def test_what_is_set_on_a_kernel_needs_no_context_of_its_own(engine: Engine, guest: Guest) -> None:
    kernel(guest)
    must(guest, "cuKernelSetAttribute", kernel=KERNEL, attrib=SHARED, val=512, dev=0, context=THERE)
    assert of("cuKernelSetAttribute", engine.call("snapshot")) == [0]
    must(guest, "cuCtxDestroy_v2", ctx=CONTEXT)
    assert of("cuKernelSetAttribute", engine.call("snapshot")) == [0]


def test_a_kernel_is_set_for_each_device(tmp_path: Path) -> None:
    """The last of each setting is kept for each device that has it."""
    with Engine(tmp_path / "log", (0, 1), GPUFERRY_SIM_DEVICES="2") as engine:
        guest = engine.session()
        kernel(guest)
        for value, device in ((256, 0), (512, 0), (1024, 1)):
            must(guest, "cuKernelSetAttribute", kernel=KERNEL, attrib=SHARED, val=value, dev=device)
        kept = [frame for frame, _ in engine.call("snapshot")]
        wanted = [
            encode(
                "cuKernelSetAttribute", 0, 0, b"", {"attrib": SHARED, "val": v, "kernel": KERNEL, "dev": d}
            )
            for v, d in ((512, 0), (1024, 1))
        ]
        found = [frame for frame in kept if migrant.operation(frame) == "cuKernelSetAttribute"]
        assert [without_request(frame) for frame in found] == [without_request(frame) for frame in wanted]
        guest.close()
        assert engine.ended() == ("closed", True)


def test_a_library_is_loaded_without_a_context(engine: Engine, guest: Guest) -> None:
    load(guest, LIBRARY, context=THERE)
    assert of("sessionLoadImage", engine.call("snapshot")) == [0]


def test_a_link_is_its_inputs(engine: Engine, guest: Guest) -> None:
    """In the order in which they were added; those that were refused are none."""
    assert links.create(guest, context=THERE).status == 0
    links.add_all(guest)
    assert links.add(guest, b"nonsense\0").status != 0
    assert links.complete(guest).status == 0
    made, first, *steps = entries(engine.call("snapshot"))[1:]
    assert [made, first] == [("cuLinkCreate_v2", THERE), ("sessionLinkAdd", THERE)]
    assert [op for op, _ in steps] == ["sessionLinkAdd", "sessionLinkAdd", "sessionLinkComplete"]
    hashes = {hash for hash, _ in engine.call("images")}
    assert len(hashes) == 3
    must(guest, "cuLinkDestroy", state=links.LINK)
    assert entries(engine.call("snapshot"))[1:] == []
    assert engine.call("images") == []


def test_the_last_of_each_setting_is_kept(engine: Engine, guest: Guest) -> None:
    engine.call("snapshot")
    for limit, value in ((STACK, 1024), (PRINTF_FIFO, 1 << 20), (STACK, 2048)):
        must(guest, "cuCtxSetLimit", limit=limit, value=value)
    must(guest, "cuCtxSetCacheConfig", config=1)
    must(guest, "cuCtxSetCacheConfig", config=2)
    kept = [frame for frame, _ in engine.call("snapshot")]
    wanted = [
        encode("cuCtxCreate_v2", 0, 0, b"", {"pctx": CONTEXT, "flags": 0, "dev": 0}),
        encode("cuCtxSetLimit", 0, 1, b"", {"limit": PRINTF_FIFO, "value": 1 << 20}),
        encode("cuCtxSetLimit", 0, 1, b"", {"limit": STACK, "value": 2048}),
        encode("cuCtxSetCacheConfig", 0, 1, b"", {"config": 2}),
    ]
    assert [without_request(frame) for frame in kept] == [without_request(frame) for frame in wanted]


def without_request(frame: bytes) -> bytes:
    size, op, flags, _, context = HEADER.unpack_from(frame)
    return HEADER.pack(size, op, flags, 0, context) + frame[HEADER.size :]


def test_what_was_told_of_a_variable_stays_where_it_was_first_told(engine: Engine, guest: Guest) -> None:
    """What came since may use it. Names that begin alike are different ones."""
    load(guest, LIBRARY)
    for name in (b"v", b"vv", b"va", b"vv"):
        get(guest, name)
    found = [frame for frame, _ in engine.call("snapshot") if migrant.operation(frame) == "sessionGetGlobal"]
    assert [frame[HEADER.size + 8 :] for frame in found] == [b"v", b"vv", b"va"]


def test_each_context_has_its_own_settings_and_variables(engine: Engine, guest: Guest) -> None:
    kernel(guest)
    for context in (1, THERE):
        get(guest, b"v", context)
        must(guest, "cuFuncSetAttribute", hfunc=KERNEL, attrib=SHARED, value=1024, context=context)
        must(guest, "cuCtxSetLimit", limit=STACK, value=1024, context=context)
    kept = engine.call("snapshot")
    for op in ("sessionGetGlobal", "cuFuncSetAttribute", "cuCtxSetLimit", "sessionRestoreUse"):
        assert of(op, kept) == [1, THERE], op
    must(guest, "cuCtxDestroy_v2", ctx=CONTEXT)
    kept = engine.call("snapshot")
    for op in ("sessionGetGlobal", "cuFuncSetAttribute", "cuCtxSetLimit", "sessionRestoreUse"):
        assert of(op, kept) == [1], op
    assert of("cuCtxCreate_v2", kept) == []


@pytest.mark.parametrize(
    ("end", "subject", "stay"),
    [
        ("cuModuleUnload", {"hmod": MODULE}, [1, 1, THERE]),
        ("cuLibraryUnload", {"library": LIBRARY}, []),
        ("cuCtxDestroy_v2", {"ctx": CONTEXT}, [1, 1]),
        ("cuDevicePrimaryCtxReset_v2", {"dev": 0}, [THERE]),
    ],
)
def test_what_was_found_by_its_address_is_kept_until_it_is_gone(
    engine: Engine, guest: Guest, end: str, subject: dict[str, int], stay: list[int]
) -> None:
    """The first that found it, for what names it comes after that."""
    load(guest, LIBRARY)
    load(guest, MODULE)
    for context, name in ((1, b"v"), (1, b"vv"), (THERE, b"v"), (1, b"v")):
        must(guest, "sessionFindMemory", address=get(guest, name, context), context=context)
    assert of("sessionFindMemory", engine.call("snapshot")) == [1, 1, THERE]
    must(guest, end, **subject)
    assert of("sessionFindMemory", engine.call("snapshot")) == stay


def test_a_library_s_first_use_in_each_context_is_kept(engine: Engine, guest: Guest) -> None:
    load(guest, LIBRARY)
    kept = engine.call("snapshot")
    assert of("sessionRestoreUse", kept) == []
    for name in (b"v", b"vv", b"v"):
        get(guest, name)
    get(guest, b"v", THERE)
    assert of("sessionRestoreUse", engine.call("tail")) == [1, THERE]
    assert of("sessionRestoreUse", engine.call("snapshot")) == [1, THERE]


def test_a_reset_takes_what_was_set_in_the_primary_context(engine: Engine, guest: Guest) -> None:
    load(guest, LIBRARY)
    for context in (1, THERE):
        get(guest, b"v", context)
        get(guest, b"vv", context)
        must(guest, "cuCtxSetLimit", limit=STACK, value=1024, context=context)
    must(guest, "cuDevicePrimaryCtxReset_v2", dev=0)
    kept = engine.call("snapshot")
    for op in ("sessionGetGlobal", "cuCtxSetLimit", "sessionRestoreUse"):
        assert set(of(op, kept)) == {THERE}, op


def test_the_tail_has_everything_once_and_in_order(engine: Engine, guest: Guest) -> None:
    engine.call("snapshot")
    stream, event = handle("stream", 0), handle("event", 0)
    must(guest, "cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    address = guest.map(2)
    must(guest, "cuEventCreate", phEvent=event, Flags=0)
    must(guest, "sessionMemUnmap", address=address, size=2 * guest.granularity)
    must(guest, "cuStreamDestroy_v2", hStream=stream)
    must(guest, "cuDevicePrimaryCtxReset_v2", dev=0)
    assert [op for op, _ in entries(engine.call("tail"))] == [
        "cuStreamCreateWithPriority",
        "sessionMemMap",
        "cuEventCreate",
        "sessionMemUnmap",
        "cuStreamDestroy_v2",
        "cuDevicePrimaryCtxReset_v2",
    ]
    assert engine.call("tail") == []


def test_a_snapshot_begins_another_tail(engine: Engine, guest: Guest) -> None:
    engine.call("snapshot")
    must(guest, "cuCtxSetLimit", limit=STACK, value=1024)
    engine.call("snapshot")
    assert engine.call("tail") == []


def test_a_tail_that_is_forgotten_is_not_gone_on_with(engine: Engine, guest: Guest) -> None:
    engine.call("snapshot")
    must(guest, "cuCtxSetLimit", limit=STACK, value=1024)
    engine.call("forget_tail")
    must(guest, "cuCtxSetLimit", limit=STACK, value=2048)
    assert engine.call("tail") == []


@pytest.fixture
def named(guest: Guest) -> Guest:
    """Whose calls can be long."""
    image = PTX.replace(b" v;", f" {LONG_NAME};".encode())
    load(guest, LIBRARY, image=image)
    return guest


def grow(guest: Guest, size: int) -> None:
    """The tail, by so many bytes and a few more. The same calls again and again have the same answers."""
    frame = encode("sessionGetGlobal", 1, 1, LONG_NAME.encode(), {"owner": LIBRARY})
    guest.socket.sendall(frame)
    answer = guest._exactly(ANSWER.size)
    assert ANSWER.unpack(answer)[4] == 0
    for _ in range(size // len(frame) // 32 + 1):
        guest.socket.sendall(32 * frame)
        assert guest._exactly(32 * len(answer)) == 32 * answer


@pytest.mark.system
def test_a_tail_that_nobody_fetches_is_given_up(engine: Engine, named: Guest) -> None:
    """What was fetched does not count. It is said when it is asked for; the next one is whole again."""
    engine.call("snapshot")
    for _ in range(9):
        grow(named, TAIL_LIMIT // 8)
        assert len(engine.call("tail")) >= TAIL_LIMIT // 8 // 4096
    grow(named, TAIL_LIMIT)
    with pytest.raises(RuntimeError, match="too fast"):
        engine.call("tail")
    engine.call("snapshot")
    get(named, b"vv")
    assert [op for op, _ in entries(engine.call("tail"))] == ["sessionGetGlobal"]


def test_memory_that_is_being_taken_away_is_not_there(engine: Engine, guest: Guest) -> None:
    """It is unmapped when a kernel that runs is over."""
    flag, gone = guest.map(1), guest.map(1, at=1)
    waits = kernels.bind(guest, "wait_for")
    guest.write(flag, bytes(8))
    stream, other = handle("stream", 0), handle("stream", 1)
    for one in (stream, other):
        must(guest, "cuStreamCreateWithPriority", phStream=one, flags=1, priority=0)
    guest.launch(waits, struct.pack("<QQ", flag, flag + 4), block=(1, 1, 1), stream=stream)
    guest.send("sessionMemUnmap", address=gone, size=guest.granularity)
    assert guest.call("cuStreamQuery", hStream=stream).status == NOT_READY
    kept = engine.call("snapshot")
    guest.write(flag, struct.pack("<I", 1), stream=other)
    guest.sync()
    maps = [frame for frame, _ in kept if migrant.operation(frame) == "sessionMemMap"]
    assert [struct.unpack_from("<Q", frame, HEADER.size)[0] for frame in maps] == [flag]


def test_memory_in_place_of_other_memory_is_new(engine: Engine, guest: Guest) -> None:
    """What was copied of the memory before is not what it holds."""
    address, page = guest.map(2), guest.granularity
    guest.write(address, b"before")
    guest.sync()
    engine.call("snapshot")
    assert engine.call("alias") == [(address, 2 * page)]
    must(guest, "sessionMemUnmap", address=address, size=2 * page)
    guest.map(2)
    guest.write(address, b"behind")
    guest.sync()
    assert engine.call("read", address, 6) == b"before"
    assert engine.call("alias") == [(address, 2 * page)]
    assert engine.call("read", address, 6) == b"behind"
    engine.call("drop_aliases")


def test_a_part_of_a_mapping_where_another_one_began(engine: Engine, guest: Guest) -> None:
    """Is still a part."""
    page = guest.granularity
    second = guest.map(1, at=1)
    must(guest, "sessionMemUnmap", address=second, size=page)
    guest.map(2)
    refused = guest.call("sessionMemUnmap", address=second, size=page)
    assert refused.status != 0
    must(guest, "sessionMemUnmap", address=guest.window, size=2 * page)


def test_events_of_every_context(engine: Engine, guest: Guest) -> None:
    here, there = handle("event", 0), handle("event", 1)
    for event, context in ((here, 1), (there, THERE)):
        must(guest, "cuEventCreate", phEvent=event, Flags=0, context=context)
        must(guest, "cuEventRecordWithFlags", hEvent=event, hStream=0, flags=0, context=context)
    assert engine.call("hold", 60.0)
    assert engine.call("drain", 60.0) == ""
    assert sorted((event, flags) for event, flags, _ in engine.call("events")) == [(here, 0), (there, 0)]
    engine.call("proceed")


def test_ages_count_from_one_moment(pair: tuple[Engine, Engine]) -> None:
    """Whenever the destination hears of each; one that is recorded anew has none."""
    _, target = pair
    link = target.session(restore=True)
    first, second, third = (handle("event", slot) for slot in range(3))
    for event in (first, second, third):
        must(link, "cuEventCreate", phEvent=event, Flags=0)
    must(link, "sessionRestoreEvent", event=first, flags=0, age=7_000_000_000)
    time.sleep(0.05)  # the destination hears of the next at another moment
    must(link, "sessionRestoreEvent", event=second, flags=0, age=5_000_000_000)
    began = time.monotonic()
    must(link, "cuEventRecordWithFlags", hEvent=third, hStream=0, flags=0)
    link.sync()

    def elapsed(start: int, end: int) -> float:
        reply = link.call("cuEventElapsedTime_v2", hStart=start, hEnd=end)
        assert reply.status == 0
        return float(reply.values["pMilliseconds"])

    assert elapsed(first, second) == 2000
    assert elapsed(first, third) >= 7050
    assert elapsed(second, third) >= 5050
    must(link, "cuEventRecordWithFlags", hEvent=first, hStream=0, flags=0)
    link.sync()
    assert 0 <= elapsed(third, first) <= 1000 * (time.monotonic() - began)
    link.close()
    assert target.ended() == ("closed", True)
