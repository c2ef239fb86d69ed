"""The API server's engine before frames of every kind, most of them wrong: it answers or ends the session."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from gpuferry.monitor.jail.filter import program

from tests.apiserver.engine import Engine
from tests.apiserver.guest import operations
from tests.fuzz.building import FOLDER
from tests.fuzz.hostile import Hostile

FEW, MANY = 6000, 300_000


def attack(folder: Path, inputs: int, seed: int) -> Hostile:
    """In session after session. An engine whose device a kernel has broken is replaced, as a monitor does. It
    is sealed as in a jail, also under ASan (`make test-sanitize`): what a filter refuses, it must live with.
    """
    hostile = Hostile(seed)
    while hostile.frames < inputs:
        with Engine(folder / "log") as engine:
            engine.call("host_seal", program(False).hex())
            clean, sessions = True, itertools.count()
            while clean and hostile.frames < inputs:
                restoring = next(sessions) % 4 == 3
                try:
                    session = engine.session(restore=restoring)
                    hostile.attack(session, restoring, lambda: engine.call("go_on_without_guest"))
                    _, clean = engine.ended()
                except (AssertionError, RuntimeError) as error:
                    path = FOLDER / f"crash-engine-{seed}"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(hostile.sent)
                    raise AssertionError(f"seed {seed}, frame {hostile.frames}, in {path}: {error}") from None
    return hostile


def test_few_frames(tmp_path: Path) -> None:
    hostile = attack(tmp_path, FEW, 1)
    assert hostile.operations == operations().keys()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_frames(tmp_path: Path) -> None:
    print(f"fuzz: engine: {attack(tmp_path, MANY, 2).frames} frames")
