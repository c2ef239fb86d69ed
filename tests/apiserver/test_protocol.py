"""What no good guest sends. A broken frame ends the session; a bad handle is that call's error."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from gpuferry.apiserver.end import End
from gpuferry.specs._generated import node_pb2
from gpuferry.specs._generated.frames import CHUNK, Frame, Hello
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver import kernels, links
from tests.apiserver.engine import Engine
from tests.apiserver.guest import HEADER, PRIMARY, Ended, Guest, encode, handle, operations
from tests.apiserver.server import Server

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = 1, 201, 400
MALFORMED, SHUTTING_DOWN = 7, 6
FRAME_MAX = 16 << 20


def raw(op: int, body: bytes = b"", *, size: int | None = None, flags: int = 0, request: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(body) if size is None else size, op, flags, request, PRIMARY) + body


def copy_in(width: int, rows: int, payload: bytes) -> bytes:
    values: dict[str, Any] = {"stream": 0, "address": 0, "pitch": 0, "width": width, "rows": rows}
    return encode("sessionCopyIn", 0, PRIMARY, payload, values)


def copy_out(width: int, rows: int, request: int = 1) -> bytes:
    values: dict[str, Any] = {"stream": 0, "address": 0, "pitch": 0, "width": width, "rows": rows}
    return encode("sessionCopyOut", request, PRIMARY, b"", values)


def launch(params: int, attributes: int, payload: bytes) -> bytes:
    values: dict[str, Any] = {
        "function": handle("kernel", 0),
        "stream": 0,
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "shared": 0,
        "attributes": attributes,
        "params": params,
    }
    return encode("sessionLaunch", 0, PRIMARY, payload, values)


def image(size: int, offset: int, payload: bytes) -> bytes:
    values: dict[str, Any] = {"hash": bytes(32), "size": size, "offset": offset}
    return encode("sessionImageData", 0, PRIMARY, payload, values)


BROKEN = {
    "size below the header's": raw(4, size=15),
    "size zero": raw(4, size=0),
    "size above the limit": raw(10, size=FRAME_MAX + 1),
    "size of 4 GiB": raw(10, size=(1 << 32) - 1),
    "a reply": raw(4, flags=1),
    "unknown flags": raw(4, flags=0x8000),
    "operation 0": raw(0),
    "unknown operation": raw(0x7777),
    "operation without message": raw(256),
    "handshake again": raw(Frame.HELLO, bytes(Hello.SIZE)),
    "body too short": raw(2, bytes(15)),
    "body too long": raw(2, bytes(17)),
    "bulk body too short": raw(10, bytes(39)),
    "large frame of an operation that has none": raw(2, bytes(1 << 20)),
    "large frame of an operation that has a small payload": raw(14, bytes(1 << 20)),
    "no request id where an answer is due": copy_out(4, 1, request=0),
    "payload shorter than announced": copy_in(8, 4, bytes(31)),
    "payload longer than announced": copy_in(8, 4, bytes(33)),
    "rows times width overflows": copy_in(1 << 63, 2, b""),
    "rows times width overflows to the payload": copy_in((1 << 63) + 8, 2, bytes(16)),
    "copy in above a chunk": copy_in(CHUNK + 1, 1, bytes(CHUNK + 1)),
    "copy out above a chunk": copy_out(CHUNK, 2),
    "copy out overflows": copy_out(1 << 63, 2),
    "launch parameters missing": launch(16, 0, bytes(15)),
    "launch attributes missing": launch(16, 1, bytes(16)),
    "launch sizes overflow": launch((1 << 32) - 1, (1 << 32) - 1, b""),
    "image piece outside": image(10, 5, bytes(6)),
    "image offset outside": image(10, 1 << 63, b""),
}


@pytest.mark.parametrize("frame", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_frame_ends_the_session_and_only_it(server: Server, frame: bytes) -> None:
    guest = server.connect()
    guest.map()
    # Large frames are refused before they are read to their end.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        guest.socket.sendall(frame)
    ended = guest.expect_end()
    assert ended.reason == MALFORMED
    assert ended.text.startswith("malformed: ")
    report = server.ended()
    assert (report.reason, report.cause, report.clean) == (ended.text, node_pb2.CAUSE_MALFORMED, True)
    server.ready()
    assert server.connect().sync().status == 0


@pytest.mark.parametrize("cut", [1, 15, 16, 40, 56, 60, 1000])
def test_a_guest_that_vanishes_inside_a_frame(server: Server, cut: int) -> None:
    guest = server.connect()
    address = guest.map()
    values: dict[str, Any] = {"stream": 0, "address": address, "pitch": 0, "width": 4096, "rows": 1}
    guest.socket.sendall(encode("sessionCopyIn", 0, PRIMARY, bytes(4096), values)[:cut])
    guest.socket.close()
    report = server.ended()
    assert (report.cause, report.clean) == (node_pb2.CAUSE_LOST, True)
    server.ready()


@pytest.mark.parametrize(
    ("cause", "said", "refused"),
    [
        (node_pb2.CAUSE_MALFORMED, "revoked: that was no frame", MALFORMED),
        (node_pb2.CAUSE_REVOKED, "malformed: an order to end it", SHUTTING_DOWN),
        (node_pb2.CAUSE_REVOKED, "enough", SHUTTING_DOWN),
        (node_pb2.CAUSE_CLOSED, "malformed, revoked", None),
        (node_pb2.CAUSE_LOST, "revoked", None),
    ],
)
def test_what_the_guest_is_told_depends_on_the_cause_and_not_on_words(
    pair: tuple[Engine, Engine], cause: node_pb2.Cause, said: str, refused: int | None
) -> None:
    engine = pair[0]
    guest = engine.session()
    assert guest.sync().status == 0
    engine.call("end", End(cause, said))
    ended = guest.expect_end()
    assert (ended.reason, ended.text) == (refused or 0, said if refused else "")
    guest.socket.close()
    assert engine.ended() == (said, True)


def test_frames_may_come_in_any_pieces(guest: Guest) -> None:
    address = guest.map()
    values: dict[str, Any] = {"stream": 0, "address": address, "pitch": 0, "width": 300, "rows": 1}
    frames = encode("sessionCopyIn", 0, PRIMARY, bytes(range(150)) * 2, values)
    frames += encode("sessionFence", 0, PRIMARY, b"", {})
    for i in range(0, len(frames), 7):
        guest.socket.sendall(frames[i : i + 7])
    assert guest.read(address, 300) == bytes(range(150)) * 2


USES: dict[str, Callable[[int], dict[str, Any]]] = {
    "cuStreamQuery": lambda h: {"hStream": h},
    "cuStreamSynchronize": lambda h: {"hStream": h},
    "cuStreamDestroy_v2": lambda h: {"hStream": h},
    "cuStreamWaitEvent": lambda h: {"hStream": 0, "hEvent": h, "Flags": 0},
    "cuEventQuery": lambda h: {"hEvent": h},
    "cuEventSynchronize": lambda h: {"hEvent": h},
    "cuEventDestroy_v2": lambda h: {"hEvent": h},
    "cuEventRecordWithFlags": lambda h: {"hEvent": h, "hStream": 0, "flags": 0},
    "cuEventElapsedTime_v2": lambda h: {"hStart": h, "hEnd": h},
    "cuModuleUnload": lambda h: {"hmod": h},
    "cuLibraryUnload": lambda h: {"library": h},
    "cuFuncSetCacheConfig": lambda h: {"hfunc": h, "config": 0},
    "cuKernelSetCacheConfig": lambda h: {"kernel": h, "config": 0, "dev": 0},
    "cuFuncSetAttribute": lambda h: {"hfunc": h, "attrib": 8, "value": 0},
    "sessionGetGlobal": lambda h: {"owner": h, "payload": b"x"},
    "sessionGetManaged": lambda h: {"owner": h, "payload": b"x"},
    "sessionGetFunction": lambda h: {"function": handle("function", 5), "owner": h, "index": 0},
    "sessionGetModule": lambda h: {"module": handle("module", 5), "library": h},
}
STRANGE = {
    "null": 0xDEAD,
    "never made": None,
    "another kind": handle("context", 0),
    "unknown kind": 0x6766 << 48 | 99 << 40,
    "slot above the limit": handle("stream", (1 << 20) + 5),
    "last slot": handle("event", (1 << 24) - 1),
    "no tag": 0x7FFF_0000_1234_5678,
    "all ones": (1 << 64) - 1,
}


@pytest.mark.parametrize("op", USES)
def test_handles_that_do_not_exist(guest: Guest, op: str) -> None:
    kinds = ("stream", "event", "module", "library", "function", "kernel")
    for strange in STRANGE.values():
        for value in [handle(kind, 3) for kind in kinds] if strange is None else [strange]:
            assert guest.call(op, **USES[op](value)).status == INVALID_HANDLE
    assert guest.sync().status == 0


def test_generations(guest: Guest) -> None:
    old, new = handle("event", 4, generation=1), handle("event", 4, generation=2)
    guest.send("cuEventCreate", phEvent=old, Flags=0)
    assert guest.call("cuEventCreate", phEvent=new, Flags=0).status == INVALID_HANDLE  # the slot is taken
    assert guest.call("cuEventQuery", hEvent=new).status == INVALID_HANDLE
    guest.send("cuEventDestroy_v2", hEvent=old)
    guest.send("cuEventCreate", phEvent=new, Flags=0)
    assert guest.call("cuEventQuery", hEvent=old).status == INVALID_HANDLE
    assert guest.call("cuEventQuery", hEvent=new).status == 0


def test_creating_under_a_handle_of_another_kind(guest: Guest) -> None:
    wrong = handle("event", 1)
    assert (
        guest.call("cuStreamCreateWithPriority", phStream=wrong, flags=0, priority=0).status == INVALID_HANDLE
    )
    assert guest.call("cuCtxCreate_v2", pctx=wrong, flags=0, dev=0).status == INVALID_HANDLE
    primary = handle("context", 0)
    assert guest.call("cuCtxCreate_v2", pctx=primary, flags=0, dev=0).status == INVALID_HANDLE
    assert guest.sync().status == 0


@pytest.mark.parametrize("context", [0, 7, 1 << 20, (1 << 20) + 1, (1 << 32) - 1])
def test_contexts_that_do_not_exist(guest: Guest, context: int) -> None:
    assert guest.call("cuCtxSynchronize", context=context).status == INVALID_CONTEXT
    address = guest.map()
    values = {"stream": 0, "address": address, "pitch": 0, "width": 8, "rows": 1}
    guest.send("sessionCopyIn", context=context, payload=b"12345678", **values)
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, INVALID_CONTEXT)
    assert guest.read(address, 8) == bytes(8)


def test_the_primary_context_cannot_be_destroyed(guest: Guest) -> None:
    assert guest.call("cuCtxDestroy_v2", ctx=handle("context", 0)).status == INVALID_VALUE


def test_other_devices_do_not_exist(guest: Guest) -> None:
    assert guest.call("cuCtxCreate_v2", pctx=handle("context", 1), flags=0, dev=1).status == 101


def test_the_first_failure_is_latched_and_reported_once(guest: Guest) -> None:
    guest.send("cuEventDestroy_v2", hEvent=handle("event", 1))
    guest.send("sessionMemMap", address=0, size=1)
    reply = guest.call("cuStreamQuery", hStream=0)
    assert (reply.status, reply.latched, reply.latched_op) == (0, INVALID_HANDLE, 475)
    assert guest.sync().latched == 0


LAUNCHES = ("sessionLaunch", "sessionGraphKernel", "sessionGraphSetKernel", "sessionOccupancyClusters")


def chatter(seed: int) -> bytes:
    """Frames that are well formed and otherwise nonsense."""
    generator = random.Random(seed)
    numbers = [0, 1, 2, 3, 4, 7, 0x2000_0000_0000, 1 << 21, 1 << 63, (1 << 64) - 1]
    numbers += [handle(kind, slot) for kind in ("stream", "event", "module", "library") for slot in range(2)]
    numbers += [handle(kind, slot) for kind in ("kernel", "function", "context", "link") for slot in range(2)]
    frames = b""
    allowed = [op for op, m in operations().items() if op != "sessionClose" and not m.variant.restore]
    for _ in range(60):
        op = generator.choice(allowed)
        message = operations()[op]
        values: dict[str, Any] = {}
        for f in message.request:
            bits = int(f.type[1:])
            picked = [generator.choice(numbers) & ((1 << bits) - 1) for _ in range(f.count)]
            if f.type.startswith("i"):
                picked = [p - (1 << bits) if p >> (bits - 1) else p for p in picked]
            values[f.name] = bytes(f.count) if f.type == "u8" and f.count > 1 else picked
        payload = b""
        if op in ("sessionCopyIn", "sessionArrayIn", "sessionHostCopyIn"):
            values["width"], values["rows"] = [generator.choice([0, 1, 16])], [generator.choice([0, 1, 3])]
            payload = bytes(values["width"][0] * values["rows"][0])
        elif op in ("sessionCopyOut", "sessionArrayOut", "sessionHostCopyOut"):
            values["width"], values["rows"] = [generator.choice([0, 1, 4096])], [generator.choice([0, 1, 3])]
        elif op == "sessionGraphEdges":
            values["count"], payload = [1], bytes(16)
        elif op in ("sessionGraphBatch", "sessionGraphSetBatch"):
            values["count"], payload = [1], bytes(24)
        elif op in LAUNCHES:
            values["attributes"] = [0]
            if op != "sessionOccupancyClusters":
                values["params"], payload = [12], bytes(12)
        elif op == "sessionImageData":
            values["size"], values["offset"], payload = [64], [0], bytes(64)
        elif op == "sessionLinkImage":
            values["size"] = [generator.choice([0, 1, 4096])]
        elif op == "sessionLinkAdd":
            values["name_size"] = [generator.choice([0, 8])]
            payload = bytes(values["name_size"][0]) + links.NO_OPTIONS
        elif op == "cuLinkCreate_v2":
            payload = links.NO_OPTIONS
        context = generator.choice([0, 1, 1, 1, 2, 3])
        frames += encode(op, generator.randrange(1, 1 << 32), context, payload, values)
    return frames


@pytest.mark.parametrize("seed", range(12))
def test_nonsense_calls_harm_nobody(server: Server, seed: int) -> None:
    guest = server.connect()
    guest.map(2)
    kernels.bind(guest, "scale")
    guest.send("cuStreamCreateWithPriority", phStream=handle("stream", 0), flags=0, priority=0)
    guest.send("cuEventCreate", phEvent=handle("event", 0), Flags=0)
    guest.socket.sendall(chatter(seed))
    guest.socket.close()
    report = server.ended()
    assert report.cause in (node_pb2.CAUSE_LOST, node_pb2.CAUSE_CLOSED)
    if report.clean:  # a kernel may have been given a bad address: then the process is replaced
        server.ready()
        assert server.connect().sync().status == 0
    else:
        assert server.wait_for_exit() == 1


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(noise=st.binary(min_size=1, max_size=400))
def test_noise(server: Server, noise: bytes) -> None:
    guest = server.connect()
    guest.socket.sendall(noise)
    guest.socket.close()
    assert server.ended().clean
    server.ready()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(op=st.sampled_from(sorted(operations())), request=st.integers(0, 3), body=st.binary(max_size=120))
def test_noise_behind_a_good_header(server: Server, op: str, request: int, body: bytes) -> None:
    guest = server.connect()
    guest.socket.sendall(raw(operations()[op].variant.id, body, request=request))
    guest.socket.close()
    assert server.ended().clean
    server.ready()


def test_expect_end_tells_closed_from_refused(server: Server) -> None:
    guest = server.connect()
    guest.send("sessionClose")
    ended = guest.expect_end()
    assert isinstance(ended, Ended)
    assert (ended.text, ended.reason) == ("", 0)
