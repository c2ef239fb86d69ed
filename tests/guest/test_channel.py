"""Order, batching, errors that come late, and servers that go away."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from gpuferry.specs._generated.frames import Frame as Op
from gpuferry.specs._generated.frames import Refused

from tests.guest.conftest import Guest
from tests.guest.fake_server import FIRST, MIB, OPS, Answer, FakeServer, Frame

UNAVAILABLE, ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED = 46, 700, 701, 801


def stream_of(frame: Frame) -> int:
    return int.from_bytes(frame.body[8:16], "little")


def test_async_calls_arrive_in_order_in_few_writes(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
events = [made("cuEventCreate", 0) for _ in range(50)]
for event in events * 100:
    ok("cuEventRecord", event, 0)
print(*events)
ok("cuCtxSynchronize")
print(stats()["round_trips"], stats()["writes"] < 1000)
"""
    )
    events, counts = outcome.stdout.splitlines()
    recorded = [
        str(int.from_bytes(f.body[:8], "little")) for f in server.frames if f.name == "cuEventRecordWithFlags"
    ]
    assert recorded == events.split() * 100
    assert counts == "1 True"
    assert server.names[-2:] == ["cuCtxSynchronize", "sessionClose"]
    assert {frame.context for frame in server.frames[:-2]} == {1}


def test_large_payloads_keep_their_place(server: FakeServer, guest: Guest) -> None:
    guest(
        """
start()
memory = made("cuMemAlloc_v2", 12 << 20)
event = made("cuEventCreate", 0)
for size in (100, 70_000, 9 << 20, 1):
    data = bytes([size % 251]) * size
    ok("cuMemcpyHtoD_v2", memory, data, size)
    ok("cuEventRecord", event, 0)
"""
    )
    kinds = [f for f in server.frames if f.name in ("sessionCopyIn", "cuEventRecordWithFlags")]
    sizes = [len(f.body) - 40 if f.name == "sessionCopyIn" else -1 for f in kinds]
    assert sizes == [100, -1, 70_000, -1, 4 * MIB, 4 * MIB, MIB, -1, 1, -1]
    copies = [frame for frame in kinds if frame.name == "sessionCopyIn"]
    offsets = [struct.unpack_from("<QQ", frame.body)[1] - FIRST for frame in copies]
    assert offsets == [0, 0, 0, 4 * MIB, 8 * MIB, 0]
    for frame, total in zip(copies, (100, 70_000, *[9 * MIB] * 3, 1), strict=True):
        assert set(frame.body[40:]) == {total % 251}


def test_a_late_failure_is_reported_by_the_next_call_that_waits(server: FakeServer, guest: Guest) -> None:
    answers = [Answer(latched=LAUNCH_OUT_OF_RESOURCES, latched_op=OPS["sessionLaunch"]), Answer(), Answer()]
    server.answer = lambda _: answers.pop(0)
    outcome = guest('start(); print(*[cu("cuCtxSynchronize") for _ in range(3)])')
    assert outcome.stdout == f"{LAUNCH_OUT_OF_RESOURCES} 0 0\n"


def test_a_call_that_fails_leaves_the_late_failure_to_the_next(server: FakeServer, guest: Guest) -> None:
    """One call tells of one failure; neither is lost."""
    late = Answer(NOT_SUPPORTED, LAUNCH_OUT_OF_RESOURCES, OPS["sessionLaunch"])
    answers = [late, Answer(), Answer()]
    server.answer = lambda _: answers.pop(0)
    outcome = guest('start(); print(*[cu("cuCtxSynchronize") for _ in range(3)])')
    assert outcome.stdout == f"{NOT_SUPPORTED} {LAUNCH_OUT_OF_RESOURCES} 0\n"


def test_a_failure_that_destroys_the_context_stays(server: FakeServer, guest: Guest) -> None:
    answers = [Answer(latched=ILLEGAL_ADDRESS, latched_op=OPS["sessionLaunch"])]
    server.answer = lambda _: answers.pop(0)
    outcome = guest(
        """
start()
out = u64()
print(cu("cuCtxSynchronize"), cu("cuMemAlloc_v2", byref(out), 8), end=" ")
print(cu("cuCtxSynchronize"), cu("cuCtxGetCurrent", byref(out)))
"""
    )
    assert outcome.stdout == f"{ILLEGAL_ADDRESS} {ILLEGAL_ADDRESS} {ILLEGAL_ADDRESS} 0\n"
    assert server.names.count("cuCtxSynchronize") == 1


def test_a_server_that_dies_in_a_call_is_an_error_for_every_call(server: FakeServer, guest: Guest) -> None:
    def die(_: Frame) -> None:
        server.hang_up()
        raise EOFError

    server.answer = die
    outcome = guest(
        'start(); print(cu("cuCtxSynchronize"), cu("cuCtxSynchronize"), cu("cuEventCreate", byref(u64()), 0))'
    )
    assert outcome.stdout == f"{UNAVAILABLE} {UNAVAILABLE} {UNAVAILABLE}\n"
    assert len(outcome.stderr.splitlines()) == 1
    assert "lost the GPU server" in outcome.stderr


def test_a_server_that_dies_while_nobody_waits_is_noticed(server: FakeServer, guest: Guest) -> None:
    def leave(frame: Frame) -> None:
        server.reply(frame, Answer())
        raise EOFError

    server.answer = leave
    outcome = guest(
        """
start()
ok("cuCtxSynchronize")
event = u64()
end = time.monotonic() + 30
while (result := cu("cuEventCreate", byref(event), 0)) == 0 and time.monotonic() < end:
    time.sleep(0.01)
print(result)
"""
    )
    assert outcome.stdout == f"{UNAVAILABLE}\n", outcome.stderr


def test_a_reply_that_nobody_asked_for_ends_the_session(server: FakeServer, guest: Guest) -> None:
    def confuse(frame: Frame) -> Answer:
        server.send(OPS[frame.name], bytes(8), frame.request + 1, 1)
        return Answer()

    server.answer = confuse
    outcome = guest('start(); print(cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "nobody asked" in outcome.stderr


@pytest.mark.parametrize("body", [b"", b"\0" * 3])
def test_a_short_reply_ends_the_session(server: FakeServer, guest: Guest, body: bytes) -> None:
    server.answer = lambda frame: Answer(body=body if frame.name == "cuEventElapsedTime_v2" else None)
    lines = """
start()
a, b = made("cuEventCreate", 0), made("cuEventCreate", 0)
ok("cuEventRecord", a, 0); ok("cuEventRecord", b, 0)
print(cu("cuEventElapsedTime_v2", byref(ctypes.c_float()), a, b))
"""
    outcome = guest(lines)
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "malformed" in outcome.stderr


def test_a_refusal_in_mid_session_is_shown(server: FakeServer, guest: Guest) -> None:
    def refuse(_: Frame) -> Answer:
        server.send(Op.REFUSED, Refused(7, 0).pack() + b"frame 3 is too long")
        return Answer()

    server.answer = refuse
    outcome = guest('start(); print(cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "frame 3 is too long" in outcome.stderr


def test_neither_side_stops_the_other(server: FakeServer, guest: Guest) -> None:
    """The server does not read before it has sent 8 MiB; the guest wants to send 64 before it waits."""
    queue: list[Frame] = []

    def later(frame: Frame) -> Answer | None:
        if frame.name != "sessionCopyOut":
            return Answer()
        queue.append(frame)
        if len(queue) == 2:
            for asked in queue:
                server.reply(asked, Answer(body=b"d" * (4 * MIB)))
        return None

    server.answer = later
    outcome = guest(
        """
start()
memory, host = made("cuMemAlloc_v2", 8 << 20), made("cuMemAllocHost_v2", 8 << 20)
data = bytes(8 << 20)
ok("cuMemcpyDtoHAsync_v2", host, memory, 8 << 20, 0)
for _ in range(8):
    ok("cuMemcpyHtoDAsync_v2", memory, data, 8 << 20, 0)
ok("cuCtxSynchronize")
print(ctypes.string_at(host, 8 << 20) == b"d" * (8 << 20))
"""
    )
    assert outcome.stdout == "True\n", outcome.stderr


def test_data_is_there_before_the_wait_returns(server: FakeServer, guest: Guest) -> None:
    held: list[Frame] = []

    def hold(frame: Frame) -> Answer | None:
        if frame.name == "sessionCopyOut":
            held.append(frame)
            return None
        for index, asked in reversed(list(enumerate(held))):
            server.reply(asked, Answer(body=bytes([index + 1]) * 1000))
        return Answer()

    server.answer = hold
    outcome = guest(
        """
start()
memory, host = made("cuMemAlloc_v2", 4000), made("cuMemAllocHost_v2", 4000)
for part in range(4):
    ok("cuMemcpyDtoHAsync_v2", host + 1000 * part, memory, 1000, 0)
print(stats()["round_trips"])
ok("cuStreamSynchronize", 0)
print(ctypes.string_at(host, 4000) == b"".join(bytes([i + 1]) * 1000 for i in range(4)))
"""
    )
    assert outcome.stdout == "0\nTrue\n", outcome.stderr


def test_a_source_that_is_still_arriving_is_waited_for(server: FakeServer, guest: Guest) -> None:
    server.answer = lambda f: Answer(body=b"n" * 1000) if f.name == "sessionCopyOut" else Answer()
    guest(
        """
start()
memory, host = made("cuMemAlloc_v2", 4000), made("cuMemAllocHost_v2", 4000)
ok("cuMemcpyDtoHAsync_v2", host, memory, 1000, 0)
ok("cuMemcpyHtoD_v2", memory + 1000, host + 500, 100)
"""
    )
    sent = next(frame for frame in server.frames if frame.name == "sessionCopyIn")
    assert sent.body[40:] == b"n" * 100


@pytest.mark.sanitize
def test_many_threads_share_the_channel(server: FakeServer, guest: Guest) -> None:
    """Each copy comes back with the address it was asked for: no reply goes to the wrong thread."""
    server.answer = lambda f: Answer(
        body=stream_of(f).to_bytes(8, "little") * 16 if f.name == "sessionCopyOut" else None
    )
    outcome = guest(
        """
start()
context = made("cuCtxGetCurrent")
memory = made("cuMemAlloc_v2", 1 << 20)
wrong = []
def work(number):
    ok("cuCtxSetCurrent", context)
    event, buffer = made("cuEventCreate", 0), ctypes.create_string_buffer(128)
    for i in range(200):
        ok("cuEventRecord", event, 0)
        address = memory + 4096 * number + 8 * i
        ok("cuMemcpyDtoH_v2", buffer, address, 128)
        if buffer.raw != struct.pack("<Q", address) * 16:
            wrong.append(number)
        ok("cuMemcpyHtoD_v2", address, bytes(70_000 if i % 50 == 0 else 64), 64)
        ok("cuMemFree_v2", made("cuMemAlloc_v2", 1000 + i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)
"""
    )
    assert outcome.stdout == "[]\n", outcome.stderr
    assert outcome.status == 0


def test_what_a_kernel_prints_comes_behind_what_the_program_printed(server: FakeServer, guest: Guest) -> None:
    def print_first(_: Frame) -> Answer:
        server.send(Op.OUTPUT, b"from the kernel\n")
        return Answer()

    server.answer = print_first
    lines = """
start()
libc = ctypes.CDLL(None)
libc.printf(b"before\\n")
ok("cuCtxSynchronize")
libc.printf(b"behind\\n")
"""
    assert guest(lines).stdout == "before\nfrom the kernel\nbehind\n"


def test_a_child_has_no_session_and_disturbs_none(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
event = made("cuEventCreate", 0)
child = os.fork()
if child == 0:
    os._exit(cu("cuEventRecord", event, 0) * 10 + cu("cuInit", 0))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ok("cuCtxSynchronize")
print(status)
"""
    )
    assert outcome.stdout == "33\n", outcome.stderr
    assert server.names[-2:] == ["cuCtxSynchronize", "sessionClose"]


def test_a_child_of_a_process_without_a_session_gets_its_own(server: FakeServer, guest: Guest) -> None:
    lines = """
if os.fork() == 0:
    start()
    os._exit(cu("cuCtxSynchronize"))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert guest(lines).stdout == "0\n"
    assert server.names == ["cuCtxSynchronize"]


def test_statistics_are_written_at_exit(server: FakeServer, guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    guest(
        'start(); made("cuEventCreate", 0); ok("cuCtxSynchronize"); '
        'cu("cuStreamBeginRecaptureToGraph", None, 0, None, None, None)',
        GPUFERRY_STATS=str(file),
    )
    stats = json.loads(file.read_text())
    assert stats["calls"] == {"local": 2, "async": 2, "sync": 1, "unsupported": 1}
    assert stats["round_trips"] == 1
    assert stats["round_trips_by_function"] == {"cuCtxSynchronize": 1}
    assert stats["frames"] == {"sent": len(server.frames), "received": 1}
    assert stats["bytes"]["sent"] == sum(16 + len(frame.body) for frame in server.frames)
    assert stats["bytes"]["received"] == 24


def test_files_that_cannot_be_written_and_words_that_mean_nothing(guest: Guest, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no" / "file")
    said = guest("start()", GPUFERRY_STATS=nowhere, GPUFERRY_LOG_FILE=nowhere, GPUFERRY_LOG="info").stderr
    assert f"cannot write GPUFERRY_LOG_FILE={nowhere}: No such file or directory. Writing to stderr." in said
    assert f"cannot write GPUFERRY_STATS={nowhere}: No such file or directory" in said
    assert " session " in said
    said = guest("start()", GPUFERRY_STATS="/dev/full", GPUFERRY_LOG="warning").stderr
    assert said.count("GPUFERRY_LOG=warning is none of error, info, debug and trace") == 1
    assert "cannot write all of GPUFERRY_STATS=/dev/full: No space left on device" in said


def test_trace_names_every_call_and_its_result(guest: Guest) -> None:
    outcome = guest(
        'start(); cu("cuMemFree_v2", 5); cu("cuStreamBeginRecaptureToGraph", None, 0, None, None, None)',
        GPUFERRY_LOG="trace",
    )
    assert "cuMemFree_v2: CUDA_ERROR_INVALID_VALUE" in outcome.stderr
    assert "cuStreamBeginRecaptureToGraph is not supported" in outcome.stderr
