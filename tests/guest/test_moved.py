"""A session that goes to another GPU server takes its guest along: no call is lost, repeated or early."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from gpuferry.specs._generated.frames import Frame as Op

from tests.guest.conftest import preloaded, run_guest
from tests.guest.fake_server import REPLY_SIZE, Answer, Frame
from tests.guest.moving_server import MovingServer
from tests.helpers.running import Outcome

Program = Callable[..., Outcome]
UNAVAILABLE = 46
pytestmark = pytest.mark.sanitize


@pytest.fixture
def server() -> Iterator[MovingServer]:
    with TemporaryDirectory(prefix="gpuferry-fake-") as folder:
        fake = MovingServer(Path(folder) / "socket")
        yield fake
        fake.close()


@pytest.fixture(params=["error", "reconnect"])
def program(server: MovingServer, request: pytest.FixtureRequest) -> Program:
    """Runs lines of Python in a process that has the guest library loaded, in both modes."""
    server.resumable = request.param == "reconnect"
    return partial(run_guest, server, GPUFERRY_ON_LOSS=request.param)


RECORDS = """
start()
events = [made("cuEventCreate", 0) for _ in range(20)]
for turn in range(30):
    for event in events:
        ok("cuEventRecord", event, 0)
    ok("cuCtxSynchronize")
print(*events)
"""


@pytest.mark.parametrize("every", [1, 7, 60, 633])
def test_calls_arrive_once_and_in_order(server: MovingServer, program: Program, every: int) -> None:
    server.moves = lambda n: every if n <= 12 else None
    outcome = program(RECORDS)
    assert outcome.stderr == ""
    events = outcome.stdout.split()
    turn = [f"record {event}" for event in events] + ["wait"]
    found = [
        "wait" if frame.name == "cuCtxSynchronize" else f"record {int.from_bytes(frame.body[:8], 'little')}"
        for frame in server.frames
        if frame.name in ("cuCtxSynchronize", "cuEventRecordWithFlags")
    ]
    assert found == turn * 30
    assert server.names[-1] == "sessionClose"
    assert server.connections == len(server.answered) + 1
    assert server.connections > (1 if every == 633 else 5)


def copy_back(frame: Frame) -> Answer:
    """Data that says where it was read."""
    if frame.name != "sessionCopyOut":
        return Answer()
    _, address, _, width, rows = struct.unpack_from("<5Q", frame.body)
    data = bytes([address // 4096 % 251]) * (width * rows)
    return Answer(body=bytes(REPLY_SIZE[frame.name]) + data)


@pytest.mark.some(1)
@pytest.mark.parametrize("every", [1, 3])
def test_large_copies_both_ways(server: MovingServer, program: Program, every: int) -> None:
    server.moves = lambda n: every if n <= 20 else None
    server.answer = copy_back
    outcome = program(
        """
start()
memory = made("cuMemAlloc_v2", 32 << 20)
event = made("cuEventCreate", 0)
for turn, size in enumerate((100, 70_000, 9 << 20, 1, 20 << 20, 300_000) * 2):
    data = bytes([turn]) * size
    ok("cuMemcpyHtoD_v2", memory, data, size)
    ok("cuEventRecord", event, 0)
    back = ctypes.create_string_buffer(size)
    ok("cuMemcpyDtoH_v2", back, memory + 4096 * turn, min(size, (32 << 20) - 4096 * turn))
    first = (memory + 4096 * turn) // 4096 % 251
    assert back.raw[0] == first, (turn, back.raw[0], first)
print("fine")
"""
    )
    assert (outcome.stdout, outcome.stderr) == ("fine\n", "")
    sizes = [len(f.body) - 40 for f in server.frames if f.name == "sessionCopyIn"]
    mib = 1 << 20
    assert sizes == [100, 70_000, 4 * mib, 4 * mib, mib, 1, *[4 * mib] * 5, 300_000] * 2
    turns = [f.body[40] for f in server.frames if f.name == "sessionCopyIn"]
    assert turns == sorted(turns)
    assert server.connections > 5


@pytest.mark.system
def test_many_threads(server: MovingServer, program: Program) -> None:
    server.moves = lambda n: 40 if n <= 8 else None
    server.answer = copy_back
    outcome = program(
        """
start()
memory = made("cuMemAlloc_v2", 32 << 20)
context = made("cuDevicePrimaryCtxRetain", 0)
def work(number):
    ok("cuCtxSetCurrent", context)
    back = ctypes.create_string_buffer(200_000)
    for turn in range(60):
        ok("cuMemcpyHtoD_v2", memory, bytes(100_000), 100_000)
        place = memory + 4096 * (number * 60 + turn)
        ok("cuMemcpyDtoH_v2", back, place, 200_000)
        assert set(back.raw) == {place // 4096 % 251}
        ok("cuCtxSynchronize")
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("joined")
"""
    )
    assert (outcome.stdout, outcome.stderr) == ("joined\n", "")
    assert server.names.count("cuCtxSynchronize") == 240
    assert server.names.count("sessionCopyOut") == 240
    assert server.connections == 9


BEHIND = """
start()
memory, event = made("cuMemAlloc_v2", 1 << 20), made("cuEventCreate", 0)
ok("cuCtxSynchronize")
back = ctypes.create_string_buffer(200_000)
ok("cuEventRecord", event, 0)
ok("cuMemcpyDtoH_v2", back, memory, 200_000)
ok("cuCtxSynchronize")
print(len(set(back.raw)))
"""


def test_a_full_socket_keeps_nobody_from_reading(
    server: MovingServer, program: Program, tmp_path: Path
) -> None:
    """MOVED cannot be answered before what is behind it is read: who read once waited, and read nothing."""
    server.answer = copy_back
    assert program(BEHIND).stdout == "1\n"
    at = server.names.index("sessionCopyOut")
    # Had the guest heard of it before it sent the last call, that would go elsewhere, and nothing be behind.
    server.moves, server.early = lambda n: at + 1 if n == 2 else None, True
    server.received = server.sent = 0  # of the session that comes now
    preload = preloaded("full_socket.c", tmp_path)
    outcome = program(BEHIND, LD_PRELOAD=preload, GPUFERRY_TEST_READ="200000")
    assert (outcome.stdout, outcome.stderr) == ("1\n", "")
    assert server.answered
    assert server.connections == 3


def test_a_guest_that_does_not_call_is_not_waited_for(server: MovingServer, program: Program) -> None:
    """It hears of it when it next waits for something, however long that takes, and may as well just end."""
    server.moves = lambda n: 1 if n == 1 else None
    outcome = program(
        """
start()
ok("cuCtxSynchronize")
time.sleep(0.5)
print("awake", flush=True)
ok("cuCtxSynchronize")
ok("cuCtxSynchronize")
"""
    )
    assert (outcome.stdout, outcome.stderr) == ("awake\n", "")
    assert server.names.count("cuCtxSynchronize") == 3
    assert server.names[-1] == "sessionClose"


def test_one_that_ends_without_another_call(server: MovingServer, program: Program) -> None:
    server.moves = lambda n: 1 if n == 1 else None
    began = time.monotonic()
    outcome = program('start(); ok("cuCtxSynchronize")')
    assert outcome.stderr == ""
    assert server.names[-1] == "sessionClose"
    assert time.monotonic() - began < 60


def test_a_forged_message_is_not_followed(server: MovingServer, program: Program) -> None:
    server.moves = lambda n: 1 if n == 1 else None
    server.forged = True
    outcome = program('start(); cu("cuCtxSynchronize"); print(cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "not by the server that granted the session" in outcome.stderr
    assert server.connections == 1


@pytest.mark.parametrize("resumable", [False, True], ids=["error", "reconnect"])
def test_a_connection_that_ends_too_early(server: MovingServer, resumable: bool) -> None:
    """A guest that counts gets what is missing where its session is; another cannot know, and is told."""
    server.moves = lambda n: 1 if n == 1 else None
    server.resumable, server.farewell = resumable, False
    outcome = run_guest(
        server,
        'start(); [cu("cuCtxSynchronize") for _ in range(2)]; print(cu("cuCtxSynchronize"))',
        GPUFERRY_ON_LOSS="reconnect" if resumable else "error",
    )
    assert outcome.stdout == f"{0 if resumable else UNAVAILABLE}\n"
    assert ("lost the GPU server" in outcome.stderr) is not resumable
    assert server.connections == 1 + resumable


def test_an_end_that_nobody_wanted(server: MovingServer) -> None:
    """Who says that it has said everything, and did not say where the session is."""

    def answer(frame: Frame) -> Answer:
        server.send(Op.MOVED, b"")
        return Answer()

    server.answer = answer
    outcome = run_guest(server, 'start(); cu("cuCtxSynchronize"); print(cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "nothing was to be ended" in outcome.stderr


def test_nobody_has_it_there(server: MovingServer, program: Program) -> None:
    server.moves = lambda n: 1 if n == 1 else None
    server.refuses = True
    outcome = program('start(); [cu("cuCtxSynchronize") for _ in range(2)]; print(cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "nobody has it" in outcome.stderr


@pytest.mark.parametrize("bytes_of_it", [0, 1, 5, 15, 16, 17, 100, 135])
def test_the_connection_breaks_while_it_is_told(server: MovingServer, bytes_of_it: int) -> None:
    server.resumable, server.cut = True, bytes_of_it
    server.moves = lambda n: 100 if n <= 3 else None
    outcome = run_guest(server, RECORDS, GPUFERRY_ON_LOSS="reconnect")
    assert outcome.stderr == ""
    assert server.names.count("cuEventRecordWithFlags") == 600
    assert server.names.count("cuCtxSynchronize") == 30
    assert (server.connections, server.number) == (4, 10)
