"""The disk cache and the compile service as processes see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths

PROGRAM = """
import sys, numpy as np
from tests.ptx import driver
from tests.ptx.ptx import HEADER, entry, store
kernels = "".join(entry(f"    mov.u32 %r10, {i};\\n" + store("%r10"), f"k{i}", 1) for i in range(5))
module = driver.Module(HEADER + kernels)
for i in range(5):
    out = driver.Buffer(np.zeros(1, np.uint32))
    module.launch(f"k{i}", out)
    assert out.read()[0] == i
print("well")
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> tuple[Path, Path]:
    """A Python for the service that notes each start and its environment."""
    script, starts = tmp_path / "python", tmp_path / "starts"
    script.write_text(
        f'#!/bin/sh\nenv | sort >> {starts}\necho "START $$" >> {starts}\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    starts.touch()
    return script, starts


def environment(**changes: str | Path) -> dict[str, str]:
    base = {
        name: value
        for name, value in os.environ.items()
        if name not in ("XDG_CACHE_HOME", "GPUFERRY_SIM_CACHE")
    }
    return base | {name: str(value) for name, value in changes.items()}


def run(**changes: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment(**changes),
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def count(starts: Path) -> int:
    return starts.read_text().count("START ")


def test_a_warm_cache_needs_no_service(tmp_path: Path, interpreter: tuple[Path, Path]) -> None:
    script, starts = interpreter
    cache = tmp_path / "cache"
    first = run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON=script)
    assert first.stdout == "well\n", first.stderr
    assert count(starts) == 1
    assert len(list(cache.glob("*.o"))) == 5
    assert len(list(cache.glob("*.index"))) == 1
    again = run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON="/nonexistent/python")
    assert again.stdout == "well\n", again.stderr


@pytest.mark.system
def test_each_form_of_code_is_kept(tmp_path: Path) -> None:
    """Which of them is chosen is part of what code is found by."""
    for count_of_objects, unit in enumerate(("warp", "thread"), 1):
        done = run(GPUFERRY_SIM_CACHE=tmp_path, GPUFERRY_SIM_UNIT=unit)
        assert done.stdout == "well\n", done.stderr
        assert len(list(tmp_path.glob("*.o"))) == 5 * count_of_objects


@pytest.mark.system
def test_damaged_files_are_made_again(tmp_path: Path, interpreter: tuple[Path, Path]) -> None:
    script, starts = interpreter
    cache = tmp_path / "cache"
    run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON=script)
    for i, path in enumerate(sorted(cache.iterdir())):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        path.write_bytes([bytes(data), bytes(data[:10]), b"", bytes(data) * 2][i % 4])
    again = run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON=script)
    assert again.stdout == "well\n", again.stderr
    assert count(starts) == 2
    assert run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON="/nonexistent/python").stdout == "well\n"


@pytest.mark.system
def test_places(tmp_path: Path) -> None:
    assert run(XDG_CACHE_HOME=tmp_path / "xdg").stdout == "well\n"
    assert list((tmp_path / "xdg" / "gpuferry" / "ptx").glob("*.o"))
    assert run(HOME=tmp_path).stdout == "well\n"
    assert list((tmp_path / ".cache" / "gpuferry" / "ptx").glob("*.o"))


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """Not even by root: the home is a file."""
    (tmp_path / "home").touch()
    result = run(HOME=tmp_path / "home", XDG_CACHE_HOME=tmp_path / "home")
    assert result.stdout == "well\n", result.stderr


def test_others_may_not_write_the_cache(tmp_path: Path, interpreter: tuple[Path, Path]) -> None:
    script, starts = interpreter
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_PYTHON=script, HOME=tmp_path)
    assert not list(cache.iterdir())
    assert count(starts) == 1


def test_no_python_is_said_clearly(tmp_path: Path) -> None:
    result = run(GPUFERRY_SIM_CACHE=tmp_path / "cache", GPUFERRY_SIM_PYTHON="/nonexistent/python")
    assert "CUDA error 221" in result.stderr
    assert "cannot start the PTX compiler with /nonexistent/python" in result.stderr


def test_a_python_without_gpuferry_is_said_clearly(tmp_path: Path) -> None:
    result = run(GPUFERRY_SIM_CACHE=tmp_path / "cache", GPUFERRY_SIM_PYTHON="/bin/false")
    assert "CUDA error 221" in result.stderr
    assert "the PTX compiler did not start" in result.stderr


def test_the_service_does_not_load_the_simulated_driver(
    tmp_path: Path, interpreter: tuple[Path, Path]
) -> None:
    script, starts = interpreter
    library = paths.SIM_LIBRARY
    result = run(
        GPUFERRY_SIM_CACHE=tmp_path / "cache",
        GPUFERRY_SIM_PYTHON=script,
        LD_PRELOAD=library,
        LD_LIBRARY_PATH=f"{library.parent}:/usr/lib",
        PYTHONHOME=sys.base_prefix,
    )
    assert result.stdout == "well\n", result.stderr
    seen = dict(line.partition("=")[::2] for line in starts.read_text().splitlines())
    assert "LD_PRELOAD" not in seen
    assert seen["LD_LIBRARY_PATH"] == "/usr/lib"


@pytest.mark.system
def test_many_processes_at_once(tmp_path: Path) -> None:
    settings = environment(GPUFERRY_SIM_CACHE=tmp_path / "cache")
    command = [sys.executable, "-c", PROGRAM]
    programs = [
        subprocess.Popen(command, env=settings, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [program.communicate(timeout=120)[0] for program in programs] == ["well\n"] * 4
    assert len(list((tmp_path / "cache").glob("*.o"))) == 5


@pytest.mark.system
def test_a_service_that_died_is_started_again(tmp_path: Path, interpreter: tuple[Path, Path]) -> None:
    script, starts = interpreter
    program = PROGRAM.replace(
        "for i in range(5):\n    out",
        "import os, signal\nfor i in range(5):\n"
        f"    if i == 2:\n        service = int(open({str(starts)!r}).read().rpartition('START ')[2])\n"
        "        os.kill(service, signal.SIGKILL)\n    out",
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(GPUFERRY_SIM_CACHE=tmp_path / "cache", GPUFERRY_SIM_PYTHON=script),
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stdout == "well\n", result.stderr
    assert count(starts) == 2


def test_the_service_is_no_child_of_the_program(tmp_path: Path) -> None:
    """A program that waits for all its children must not wait for ours."""
    program = PROGRAM + "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')\n"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(GPUFERRY_SIM_CACHE=tmp_path / "cache"),
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.stdout == "well\nnone\n", result.stderr


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    old = cache / "old.o"
    old.write_bytes(bytes(1 << 20))
    os.utime(old, (0, 0))
    assert run(GPUFERRY_SIM_CACHE=cache, GPUFERRY_SIM_CACHE_BYTES=str(1 << 19)).stdout == "well\n"
    assert not old.exists()
    assert list(cache.glob("*.o"))
