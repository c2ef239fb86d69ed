"""What an installation pulls in: nothing for guests, ranges for the rest, exact versions for `make` alone."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Callable

import pytest
from packaging.utils import canonicalize_name

from tests.helpers.paths import ROOT
from tests.packaging import requirements

NOWHERE = "127.0.0.1:9"


def test_the_base_needs_nothing() -> None:
    assert requirements.project()["dependencies"] == []


def test_extras_are_ranges() -> None:
    for requirement in requirements.of_extras():
        operators = sorted(part.operator for part in requirement.specifier)
        assert operators == ["<", ">="], f"{requirement}: an exact version fights with other applications"


def test_the_lock_is_within_the_ranges() -> None:
    locked = requirements.locked()
    for wanted in filter(requirements.applies, requirements.of_extras()):
        versions = [
            next(iter(line.specifier)).version
            for line in locked[canonicalize_name(wanted.name)]
            if requirements.applies(line)
        ]
        assert len(versions) == 1, f"{wanted}: `make lock`"
        assert wanted.specifier.contains(versions[0]), f"{wanted}, and locked is {versions[0]}: `make lock`"


Bare = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The command in a Python that has gpuferry, and no other package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", symlinks=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUFERRY_", "PYTHON"))}
    environment = kept | {
        "PYTHONPATH": str(ROOT / "build/tree"),
        "GPUFERRY_RUNTIME_DIR": str(folder),
        "GPUFERRY_TOKEN": "nobody-is-asked-with-this-token-1",
        "GPUFERRY_MONITOR": NOWHERE,
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "venv/bin/python"), "-m", "gpuferry.monitor.cli.main", *words]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["run", "--", "echo", "it ran"], 0, "it ran"),
        (["sim", "--", "echo", "it ran"], 0, "it ran"),
        (["env"], 0, "export LD_PRELOAD="),
        (["version"], 0, "gpuferry "),
        (["--help"], 0, "  doctor "),
        ([], 2, "  doctor "),
    ],
)
def test_what_the_base_can_do(bare: Bare, words: list[str], status: int, said: str) -> None:
    done = bare(*words)
    assert done.returncode == status, done.stderr
    assert said in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_of_the_base(bare: Bare) -> None:
    done = bare("doctor")
    assert done.returncode == 1, done.stderr  # no monitor answers
    assert "ok     guest library" in done.stdout
    assert "note   what a monitor needs" in done.stdout
    assert f"cannot reach the monitor at {NOWHERE}" in done.stdout
    assert not done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["status"], "cli"),
        (["token", "list"], "cli"),
        (["monitor", "--pool", "1"], "server"),
        (["registry"], "monitor"),
        (["simulate"], "simulate"),
    ],
)
def test_what_to_install_for_the_rest(bare: Bare, words: list[str], extra: str) -> None:
    done = bare(*words)
    assert done.returncode == 1
    assert f"`gpuferry {words[0]}` needs the package " in done.stderr
    assert f"pip install 'gpuferry[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_private_monitor_needs_the_server(bare: Bare) -> None:
    done = bare("run", "--local", "--", "true")
    assert done.returncode == 1
    assert "pip install 'gpuferry[server]'" in done.stderr
    assert "Traceback" not in done.stderr
