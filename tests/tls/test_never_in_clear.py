"""Who was told tls:// does not go on in clear, whoever asks for it; and what the commands make of tls://."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.guest.conftest import PRELUDE
from tests.guest.moving_server import MovingServer
from tests.helpers.certificates import certificates
from tests.helpers.door import Between, Pair, shut
from tests.helpers.monitor import monitor
from tests.helpers.programs import ROUND_TRIP
from tests.helpers.running import Outcome, guest_environment, run
from tests.helpers.warm import CLI
from tests.registry.test_end_to_end import Circle


class Terminator(Between):
    """Speaks TLS in front of a server that does not."""

    def _come(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            super()._come(certificates().identity().server_context().wrap_socket(near, server_side=True))

    def _pumps(self, pair: Pair) -> tuple[Callable[[], None], Callable[[], None]]:
        near, far = pair
        lock = threading.Lock()  # one object, which is not to be used by two threads at once
        return partial(self._pump, near, far, lock), partial(self._pump, far, near, lock)

    def _pump(self, source: socket.socket, sink: socket.socket, lock: threading.Lock) -> None:
        with contextlib.suppress(OSError):
            while data := _receive(source, lock):
                with lock:
                    sink.sendall(data)
        shut(sink, socket.SHUT_WR)


def _receive(source: socket.socket, lock: threading.Lock) -> bytes:
    if not isinstance(source, ssl.SSLSocket):
        return source.recv(1 << 16)
    while True:
        with lock:  # never while nothing is there: it would keep the other direction
            if source.pending() or select.select([source], [], [], 0)[0]:
                return source.recv(1 << 16)
        select.select([source], [], [])


def through(terminator: Terminator, lines: str, token: str) -> Outcome:
    settings = {
        "GPUFERRY_MONITOR": f"tls://{terminator.address}",
        "GPUFERRY_TLS_CA": str(certificates().authority),
        "GPUFERRY_TOKEN": token,
    }
    return run([sys.executable, "-c", f"{PRELUDE.read_text()}\n{lines}"], guest_environment(settings))


def test_a_registry_cannot_send_a_guest_to_a_server_in_clear() -> None:
    with Circle(b"some token") as circle, Terminator(circle.address) as terminator:
        outcome = through(terminator, "start()", "some token")
        assert outcome.status != 0
        assert "go on in clear" in outcome.stderr
        assert circle.guests == 1


@pytest.fixture
def moving() -> Iterator[MovingServer]:
    with TemporaryDirectory(prefix="gpuferry-fake-") as folder:
        fake = MovingServer(Path(folder) / "socket")
        yield fake
        fake.close()


def test_a_session_does_not_move_to_a_server_in_clear(moving: MovingServer) -> None:
    """MOVED is genuine, and says unix:…: the guest does not follow."""
    moving.moves = lambda n: 5 if n == 1 else None
    with Terminator(f"unix:{moving.path}") as terminator:
        lines = 'start()\nfor _ in range(50): ok("cuCtxSynchronize")\nprint("over")'
        outcome = through(terminator, lines, moving.token.decode())
    assert "go on in clear" in outcome.stderr
    assert moving.connections == 1


def test_commands_take_tls_addresses() -> None:
    """`run --tls-ca`, `env` and `doctor`, each with the authority it is told."""
    known = certificates()
    with monitor("--pool", "1", *known.flags()) as running:
        flags = ["--monitor", running.tcp, "--tls-ca", str(known.authority)]
        token = {"GPUFERRY_TOKEN": running.token}
        environment = {**guest_environment(token), "LD_PRELOAD": ""}
        ran = run([*CLI, "run", *flags, "--", sys.executable, "-c", ROUND_TRIP], environment)
        assert (ran.status, ran.stdout) == (0, "same\n"), ran.stderr
        assert "warning" not in ran.stderr
        said = run([*CLI, "env", *flags], environment)
        assert f"export GPUFERRY_TLS_CA={known.authority}" in said.stdout, said.stderr
        assert f"export GPUFERRY_MONITOR={running.tcp}" in said.stdout
        warned = run([*CLI, "run", "--monitor", running.tcp, "--", "true"], environment)
        assert "GPUFERRY_TLS_CA" in warned.stderr
