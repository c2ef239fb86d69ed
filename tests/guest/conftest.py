from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.guest.fake_server import FakeServer
from tests.helpers.paths import ROOT
from tests.helpers.running import Outcome, guest_environment, run

PRELUDE = Path(__file__).with_name("prelude.py")
Guest = Callable[..., Outcome]


def run_guest(server: FakeServer, lines: str, **settings: str) -> Outcome:
    """Returns when the process has ended and the server has read all that it sent."""
    code = f"{PRELUDE.read_text()}\n{lines}"
    outcome = run([sys.executable, "-c", code], guest_environment({**server.settings, **settings}))
    server.settle()
    return outcome


def preloaded(name: str, folder: Path) -> str:
    """A LD_PRELOAD with this library before the guest's, compiled into the folder."""
    source, shim = Path(__file__).with_name(name), folder / f"{name}.so"
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{ROOT / 'native' / '_generated'}"]
    subprocess.run([*command, str(source), "-ldl", "-o", str(shim)], check=True, timeout=240)
    return f"{shim}:{guest_environment({})['LD_PRELOAD']}"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with TemporaryDirectory(prefix="gpuferry-fake-") as folder:
        fake = FakeServer(Path(folder) / "socket")
        yield fake
        fake.close()


@pytest.fixture
def guest(server: FakeServer) -> Guest:
    """Runs lines of Python in a process that has the guest library loaded."""
    return partial(run_guest, server)
