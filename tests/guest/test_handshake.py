"""How a session starts, and every way in which it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs._generated.wire import SPEC_HASH
from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer, expected_proof
from tests.helpers import toolchain
from tests.helpers.running import guest_environment, run

UNAVAILABLE, NO_DEVICE, NOT_INITIALIZED, NOT_READY = 46, 100, 3, 802


def test_hello_says_who_and_proves_it(server: FakeServer, guest: Guest) -> None:
    settings = {"GPUFERRY_TENANT": "acme", "GPUFERRY_FUNCTION": "resize", "GPUFERRY_MEMORY": "1.5GiB"}
    outcome = guest("start(); print(os.getpid())", **settings)
    assert (outcome.status, outcome.stderr) == (0, "")
    hello = server.hello
    assert hello is not None
    assert (hello.version, hello.spec_hash, hello.pid) == (1, SPEC_HASH, int(outcome.stdout))
    assert (hello.tenant, hello.function, hello.devices, hello.memory) == ("acme", "resize", 1, 3 << 29)
    assert hello.program.startswith("python")
    assert hello.proof == expected_proof(server)


def test_the_token_may_be_in_a_file(server: FakeServer, guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert guest("start()", GPUFERRY_TOKEN="", GPUFERRY_TOKEN_FILE=str(file)).status == 0


def test_the_snapshot_answers_device_queries(server: FakeServer, guest: Guest) -> None:
    server.attributes = {75: 9, 16: 132, 18: 1}
    outcome = guest(
        """
start()
name, number = ctypes.create_string_buffer(64), ctypes.c_int()
ok("cuDeviceGetName", name, 64, 0)
attributes = []
for attribute in (75, 16, 18):
    ok("cuDeviceGetAttribute", byref(number), attribute, 0)
    attributes.append(number.value)
total = u64()
ok("cuDeviceTotalMem_v2", byref(total), 0)
print(name.value.decode(), attributes, total.value, cu("cuDeviceGetAttribute", byref(number), 9999, 0))
print(cu("cuDeviceGet", byref(number), 1), stats()["round_trips"])
"""
    )
    # 18, INTEGRATED, is what specs/cuda/device.yaml makes of it; 1 and 101 are CUDA's errors.
    assert outcome.stdout.splitlines() == [f"fake device [9, 132, 0] {server.quota} 1", "101 0"]


def test_a_server_that_does_not_know_the_token_gets_nothing(server: FakeServer, guest: Guest) -> None:
    server.server_token = b"guessed"
    outcome = guest('print(cu("cuInit", 0), cu("cuInit", 0))')
    assert outcome.stdout == f"{UNAVAILABLE} {UNAVAILABLE}\n"
    assert len(outcome.stderr.splitlines()) == 1
    assert "impostor" in outcome.stderr
    assert server.frames == []


def test_a_refusal_is_shown_once_and_its_error_returned(server: FakeServer, guest: Guest) -> None:
    server.refusal = (4, 2, "no room for 80 GiB: ask for less with GPUFERRY_MEMORY")
    outcome = guest('print(cu("cuInit", 0), cu("cuInit", 0), cu("cuCtxSynchronize"))')
    assert outcome.stdout == f"2 2 {NOT_INITIALIZED}\n"
    assert len(outcome.stderr.splitlines()) == 1
    assert "no room for 80 GiB: ask for less with GPUFERRY_MEMORY" in outcome.stderr


def test_a_refusal_says_nothing_to_the_terminal(server: FakeServer, guest: Guest) -> None:
    """Whoever answers there, before it has proved anything, writes one line of text."""
    server.refusal = (4, 2, "no\x1b[2Jroom\r\ngpuferry: all is well\x07\x7f\x9b über")
    outcome = guest('print(cu("cuInit", 0))')
    (line,) = outcome.stderr.splitlines()
    assert line.endswith("no?[2Jroom??gpuferry: all is well???? über")


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 44, b"x" * 5000])
def test_something_else_listens_there(server: FakeServer, guest: Guest, greeting: bytes) -> None:
    server.greeting = greeting or b"!"
    outcome = guest('print(cu("cuInit", 0))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "check GPUFERRY_MONITOR" in outcome.stderr


def test_nobody_listens(guest: Guest, tmp_path: Path) -> None:
    lines = """
version = u32()
print(cu("cuInit", 0), cu("cuDriverGetVersion", byref(version)), version.value > 12000)
"""
    outcome = guest(lines, GPUFERRY_MONITOR=f"unix:{tmp_path}/nothing")
    assert outcome.stdout == f"{NOT_READY} 0 True\n"
    assert len(outcome.stderr.splitlines()) == 1
    assert "gpuferry monitor" in outcome.stderr


def test_no_monitor_is_named(guest: Guest) -> None:
    outcome = guest('print(cu("cuInit", 0))', GPUFERRY_MONITOR="")
    assert outcome.stdout == f"{NO_DEVICE}\n"
    assert "gpuferry run" in outcome.stderr


@pytest.mark.parametrize(
    ("visible", "result"), [("0", 0), ("0,1", 0), ("", NO_DEVICE), ("1", NO_DEVICE), ("-1", NO_DEVICE)]
)
def test_visible_devices(guest: Guest, visible: str, result: int) -> None:
    assert guest('print(cu("cuInit", 0))', CUDA_VISIBLE_DEVICES=visible).stdout == f"{result}\n"


def test_a_program_without_cuda_calls_connects_nowhere(
    server: FakeServer, guest: Guest, tmp_path: Path
) -> None:
    outcome = guest("pass", GPUFERRY_STATS=str(tmp_path / "stats"))
    assert (outcome.status, outcome.stderr) == (0, "")
    assert server.hello is None
    assert not (tmp_path / "stats").exists()


def test_random_numbers_need_no_device(server: FakeServer) -> None:
    """A program may have no /dev, or no descriptor left."""
    program = toolchain.program(Path(__file__).with_name("no_devices.c"), ["-rdynamic"])
    outcome = run([program], guest_environment(server.settings))
    assert outcome.status == 0, outcome.stdout + outcome.stderr
    assert server.hellos[0].nonce != bytes(len(server.hellos[0].nonce))


@pytest.mark.parametrize(
    ("window", "granularity"),
    [
        ((1 << 45, 0), 2 << 20),
        ((1 << 45, 1 << 40), 3 << 20),
        ((1 << 45, 1 << 40), 1),
        ((1 << 45, 2**64 - 1), 1 << 12),
        ((2**64 - (2 << 20), 1 << 40), 2 << 20),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    server: FakeServer, guest: Guest, window: tuple[int, int], granularity: int
) -> None:
    """The guest divided by its size, or kept its books in memory that was not there."""
    server.window, server.granularity = window, granularity
    outcome = guest('print(cu("cuInit", 0))')
    assert outcome.stdout == f"{UNAVAILABLE}\n"
    assert "malformed" in outcome.stderr
