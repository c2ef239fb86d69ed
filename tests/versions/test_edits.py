"""Guest and server of two specs: an operation added, removed, with a new id, changed under its own id."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gpuferry.specs._generated import frames, operations

from codegen import frames as codegen_frames
from codegen import released
from codegen.emit import frames as emit_frames
from codegen.load import load
from tests.helpers import programs
from tests.helpers.door import Between, Pair
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import Outcome, loading
from tests.monitor.fake_guest import connect, read_frame

from . import builds
from .builds import Edit, guest_library, server_environment
from .suite import lacking

pytestmark = pytest.mark.timeout(240)
CARRIED = """        class: sync
        needs: driver
        capture: free
        guest: generated
        server: generated
        replay: none
        args:
          hStream: {kind: ignored}
          mode: {kind: ignored}
          hGraph: {kind: ignored}
          callbackFunc: {kind: ignored}
          userData: {kind: ignored}
"""
ENDS = "        stream: argument\n        class: "
WHY = '        why: "a graph that is there cannot be captured into anew"\n'
RESET = "        signature: CUresult cuCtxResetPersistingL2Cache(void)\n        class: "
CALLED = """async
        needs: context
        guest: generated
        server: generated
        replay: none
"""
CACHE = "cuCtxSetCacheConfig\n        since: 3020\n        id: "
CLUSTERS = (
    "sessionOccupancyClusters(uint64_t function, uint64_t stream, uint32_t grid[3], uint32_t block[3], "
)
DRIVER, SESSION = "cuda/driver", "gpuferry/session.yaml"
ADDED, REMOVED, MOVED, CHANGED = (
    "cuStreamBeginRecaptureToGraph",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetCacheConfig",
    "cuOccupancyMaxActiveClusters",  # goes by sessionOccupancyClusters
)
EDITS = (
    Edit(DRIVER, f"{ENDS}unsupported\n{WHY}", ENDS + CARRIED.removeprefix("        class: ")),
    Edit(DRIVER, RESET + CALLED, f"{RESET}unsupported\n{WHY}"),
    Edit(DRIVER, f"{CACHE}309\n", f"{CACHE}4095\n"),
    Edit(SESSION, f"{CLUSTERS}uint32_t shared", f"{CLUSTERS}uint64_t shared"),
)
# Each is called twice, and what nobody changed works afterwards.
USE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address, number = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
config = ctypes.create_string_buffer(512)
for name, arguments in (
    ("cuStreamBeginRecaptureToGraph", (ctypes.c_void_p(0), 0, *[ctypes.c_void_p(0)] * 3)),
    ("cuCtxResetPersistingL2Cache", ()),
    ("cuCtxSetCacheConfig", (1,)),
    ("cuOccupancyMaxActiveClusters", (ctypes.byref(number), ctypes.c_void_p(0), config)),
):
    print(name, [getattr(cuda, name)(*arguments) for _ in range(2)])
print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)), cuda.cuCtxSynchronize())
"""
NOT_SUPPORTED = 801


@pytest.fixture(scope="module")
def edited() -> Path:
    """What the edited spec yields, and the copy of it."""
    return builds.edited(*EDITS)


@pytest.fixture(scope="module")
def their_version(edited: Path) -> str:
    text = (edited / "specs/_generated/operations.py").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("VERSION = ")]
    version = line.split('"')[1]
    assert version != operations.VERSION
    return version


@pytest.fixture(scope="module")
def their_guest(edited: Path) -> Path:
    return guest_library(edited)


@pytest.fixture(scope="module")
def our_server() -> Iterator[Monitor]:
    with monitor("--pool", "1", "--log-level", "warning") as running:
        yield running


@pytest.fixture(scope="module")
def their_server(edited: Path) -> Iterator[Monitor]:
    environment = server_environment(edited)
    with monitor("--pool", "1", "--log-level", "warning", environment=environment) as running:
        yield running


def assert_told(outcome: Outcome, named: set[str], *versions: str) -> None:
    """All four are not supported, and named once; those that one side lacks with both versions."""
    four = (ADDED, REMOVED, MOVED, CHANGED)
    calls = "".join(f"{name} {[NOT_SUPPORTED] * 2}\n" for name in four)
    assert outcome.stdout == f"{calls}0 0\n", outcome.stderr
    told = {line.split(" is not supported")[0].split()[-1]: line for line in outcome.stderr.splitlines()}
    assert (sorted(told), len(told)) == (sorted(four), len(outcome.stderr.splitlines()))
    for name in named:
        for version in versions:
            assert version in told[name]


@pytest.mark.slow
def test_a_guest_that_has_more_and_less(their_guest: Path, our_server: Monitor, their_version: str) -> None:
    """What it has not at all is unsupported as ever."""
    outcome = our_server.run([sys.executable, "-c", USE], extra=loading(their_guest))
    assert_told(outcome, {ADDED, MOVED, CHANGED}, their_version, operations.VERSION)


@pytest.mark.slow
def test_a_server_that_has_more_and_less(their_server: Monitor, their_version: str) -> None:
    outcome = their_server.run([sys.executable, "-c", USE])
    assert_told(outcome, {REMOVED, MOVED, CHANGED}, operations.VERSION, their_version)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vector_add_driver", "events"])
def test_the_rest_works(name: str, their_guest: Path, our_server: Monitor, their_server: Monitor) -> None:
    program = programs.program(name)
    assert lacking(program, our_server, loading(their_guest)) == set()
    assert lacking(program, their_server, {}) == set()


def test_the_check_refuses_these_edits(edited: Path) -> None:
    """An addition is none; the others are told with place and remedy."""
    specs = edited / "source" / "specs"
    problems = released.changes(load(specs), codegen_frames.load(specs), released.load(specs))
    assert len(problems) == 3
    for number, symbol in ((309, MOVED), (312, REMOVED)):
        (one,) = [
            each for each in problems if f"operation {number} ({symbol}) of release 0.1 is gone" in each
        ]
        assert "Put it back" in one
    (changed,) = [each for each in problems if "operation 15 is laid out otherwise" in each]
    assert changed.startswith(f"specs/{SESSION}:")
    assert "new id" in changed


class Listening(Between):
    """Keeps the frames of the handshake."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.bodies: dict[int, bytes] = {}

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        near, far = pair
        return partial(self._pump, near, far, 1), partial(self._pump, far, near, 2)

    def _pump(self, source: socket.socket, sink: socket.socket, handshakes: int) -> None:
        with suppress(OSError, EOFError):
            for _ in range(handshakes):
                op, body = read_frame(source)
                self.bodies[op] = body
                sink.sendall(frames.frame(frames.Frame(op), body))
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def told(server: Monitor, **extra: str) -> tuple[bytes, bytes]:
    """What a guest says behind the fields of HELLO, and the server behind the images of WELCOME."""
    with Listening(server.tcp) as between:
        code = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"
        extra["GPUFERRY_MONITOR"] = between.address
        outcome = server.run([sys.executable, "-c", code], extra=extra)
    assert (outcome.status, outcome.stderr) == (0, "")
    welcome = between.bodies[frames.Frame.WELCOME]
    terms = frames.Welcome.unpack(welcome)
    at = terms.SIZE + terms.device_count * frames.Device.SIZE + terms.image_hash_count * frames.HASH_SIZE
    # Behind all that, whatever the build: which program it is part of, and of which lease that is.
    said = between.bodies[frames.Frame.HELLO][frames.Hello.SIZE :]
    program = frames.ExtensionHead.SIZE + frames.PROGRAM_SIZE
    assert frames.ExtensionHead.unpack(said, len(said) - program) == (
        frames.Extension.PROGRAM,
        frames.PROGRAM_SIZE,
    )
    return said[:-program], welcome[at : -frames.Membership.SIZE]


@pytest.mark.slow
def test_few_bytes_if_both_are_of_one_build(
    our_server: Monitor, their_guest: Path, their_server: Monitor, their_version: str
) -> None:
    """Digests travel only between two builds."""
    assert told(our_server) == (b"", b"")
    assert told(their_server, **loading(their_guest)) == (b"", b"")
    offered, agreed = told(our_server, **loading(their_guest))
    count = len(operations.SPOKEN)  # one added, one removed
    heads = 2 * frames.ExtensionHead.SIZE
    assert len(offered) == heads + count * frames.Spoken.SIZE + len(their_version)
    assert len(agreed) == frames.Agreement.SIZE + (count + 7) // 8 + len(operations.VERSION)
    print(f"between two builds: {len(offered)} bytes more in HELLO, {len(agreed)} in WELCOME")


@pytest.mark.system
def test_another_protocol(tmp_path: Path) -> None:
    """A frame of the handshake may be another one there: the refusal names both."""
    contract = Path(operations.__file__).parent
    theirs = tmp_path / "specs" / "_generated"
    shutil.copytree(contract, theirs)
    other = emit_frames.of(replace(codegen_frames.load(), version=2))
    for name in ("constants.py", "frames.py"):
        (theirs / name).write_text(other[f"specs/_generated/{name}"], encoding="utf-8")
    environment = server_environment(tmp_path)
    with monitor("--pool", "1", "--log-level", "warning", environment=environment, in_clear=True) as server:
        with connect(server.tcp) as connection:
            assert frames.Greeting.unpack(read_frame(connection)[1]).version == 2
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        outcome = server.run([sys.executable, "-c", code])
    assert outcome.stdout == "803\n"  # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    assert "the guest speaks protocol version 1, this server 2" in outcome.stderr
