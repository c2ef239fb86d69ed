"""A load of an image that is known to load waits for nothing: its first use does, and hears of errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer
from tests.guest.test_modules import INVALID_PTX, KERNELS, TEXT, loads, table

LOADED = Answer(body=table(*KERNELS))
EVICTED = Answer(body=table(known=0))
TWICE = f"""
start()
def load(): return made("cuModuleLoadData", ctypes.create_string_buffer({TEXT!r}))
first, before = load(), stats()["round_trips"]
again = load()
assert stats()["round_trips"] == before == 1
def function(module): return cu("cuModuleGetFunction", byref(u64()), module, b"saxpy")
"""
ONCE = f"""
start()
module = made("cuModuleLoadData", {TEXT!r})
print(stats()["round_trips"], cu("cuModuleGetFunction", byref(u64()), module, b"saxpy"))
"""


def test_the_second_load_waits_at_its_first_use(server: FakeServer, guest: Guest) -> None:
    loads(server, LOADED, LOADED)
    outcome = guest(TWICE + "print(function(again), function(again), first != again)")
    assert outcome.stdout == "0 0 True\n", outcome.stderr
    assert server.names[:3] == ["sessionImageData", "sessionLoadImage", "sessionLoadImage"]


def test_a_failure_is_told_once_by_the_first_use(server: FakeServer, guest: Guest) -> None:
    """As if the load had said so: the handle is no one's any more, and the server is told of no use."""
    loads(server, LOADED, Answer(status=INVALID_PTX, body=table()))
    outcome = guest(
        TWICE + 'print(function(again), function(again), cu("cuModuleUnload", again), function(first))'
    )
    assert outcome.stdout == f"{INVALID_PTX} 400 400 0\n", outcome.stderr
    assert server.names.count("sessionGetFunction") == 1
    assert "cuModuleUnload" not in server.names


def test_a_server_that_let_go_of_the_image_gets_it_again(server: FakeServer, guest: Guest) -> None:
    """The program's own memory is gone by then."""
    loads(server, LOADED, EVICTED, EVICTED, LOADED)
    outcome = guest(TWICE + "print(function(again))")
    assert outcome.stdout == "0\n", outcome.stderr
    first, again = (frame.body for frame in server.frames if frame.name == "sessionImageData")
    assert first == again


def test_an_end_waits_for_what_is_being_loaded(server: FakeServer, guest: Guest) -> None:
    """A module that is unloaded, and all of a context: the server is not told before it has them."""
    loads(server, *[LOADED] * 4)
    outcome = guest(
        TWICE
        + 'ok("cuModuleUnload", again); load(); ok("cuDevicePrimaryCtxReset_v2", 0)\n'
        + 'library = made("cuLibraryLoadData", ctypes.create_string_buffer('
        + repr(TEXT)
        + '), 0, 0, 0, 0, 0, 0); ok("cuLibraryUnload", library)\nprint("well")'
    )
    assert outcome.stdout == "well\n", outcome.stderr
    told = [
        name for name in server.names if name.startswith(("sessionLoad", "cuModuleU", "cuDevice", "cuLib"))
    ]
    assert told[1:] == [
        "sessionLoadImage",
        "cuModuleUnload",
        "sessionLoadImage",
        "cuDevicePrimaryCtxReset_v2",
        "sessionLoadImage",
        "cuLibraryUnload",
    ]


def test_the_next_program_knows_too(server: FakeServer, guest: Guest, tmp_path: Path) -> None:
    cache = {"CUDA_CACHE_DISABLE": "0", "XDG_CACHE_HOME": str(tmp_path / "not" / "there")}
    for waits in (1, 0):
        loads(server, LOADED)
        assert guest(ONCE, **cache).stdout == f"{waits} 0\n"
    kept = tmp_path / "not" / "there" / "gpuferry" / "loads"
    assert kept.stat().st_size == 32
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["cut", "foreign", "disabled", "no_folder"])
def test_without_a_sound_file_it_waits(server: FakeServer, guest: Guest, tmp_path: Path, damage: str) -> None:
    cache = {"CUDA_CACHE_DISABLE": "0", "XDG_CACHE_HOME": str(tmp_path)}
    loads(server, LOADED, LOADED)
    assert guest(ONCE, **cache).stdout == "1 0\n"
    kept = tmp_path / "gpuferry" / "loads"
    if damage == "cut":
        kept.write_bytes(kept.read_bytes()[:-1])
    elif damage == "foreign":
        kept.write_bytes(bytes(64))
    elif damage == "disabled":
        cache["CUDA_CACHE_DISABLE"] = "1"
    else:
        cache |= {"XDG_CACHE_HOME": "relative", "HOME": "/proc/nobody"}
    outcome = guest(ONCE, **cache)
    assert outcome.stdout == "1 0\n", outcome.stderr
    sizes = {"cut": 32, "foreign": 96, "disabled": 32, "no_folder": 32}
    assert kept.stat().st_size == sizes[damage]


@pytest.mark.parametrize("way", ["symbolic", "hard"])
def test_what_another_put_in_its_place_is_not_written(
    server: FakeServer, guest: Guest, tmp_path: Path, way: str
) -> None:
    """XDG_CACHE_HOME may be a folder where others may write, and the name leads to a file of the user."""
    mine = tmp_path / "mine"
    mine.write_text("x" * 32)
    (tmp_path / "gpuferry").mkdir()
    name = tmp_path / "gpuferry" / "loads"
    name.symlink_to(mine) if way == "symbolic" else name.hardlink_to(mine)
    loads(server, LOADED)
    outcome = guest(ONCE, CUDA_CACHE_DISABLE="0", XDG_CACHE_HOME=str(tmp_path))
    assert outcome.stdout == "1 0\n", outcome.stderr
    assert mine.read_text() == "x" * 32
