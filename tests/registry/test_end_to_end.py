"""The real guest library by way of a registry: to a real monitor, and in circles."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from gpuferry.guest import paths
from gpuferry.monitor.door import handshake

from tests.helpers.door import Door
from tests.helpers.programs import ROUND_TRIP
from tests.monitor import harness
from tests.monitor.fake_guest import read_frame
from tests.registry.running import PATIENT, Registry, registry

COMMAND = [sys.executable, "-c", ROUND_TRIP]
INIT = [sys.executable, "-c", 'import ctypes; print(ctypes.CDLL("libcuda.so.1").cuInit(0))']


@pytest.fixture(scope="module")
def running() -> Iterator[Registry]:
    with registry(constants=PATIENT) as running:
        joined = ("--registry", running.control, "--cluster-key-file", running.key_file, "--http", "none")
        with harness.monitor("--pool", "1", *joined, server=None) as monitor:
            running.register(monitor.tcp, zone="a")
            running.wait_for(monitor.tcp, alive=True)
            monitor.wait_idle(1)
            yield running


def run(running: Registry, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return running.run("run", "--monitor", running.address, *options, "--", *COMMAND, **changes)


@pytest.mark.system
def test_a_program_with_a_tenants_token(running: Registry) -> None:
    token = running.run("token", "create", "acme", "--registry", running.control).stdout.strip()
    done = run(running, "--label", "zone=a", GPUFERRY_TOKEN=token)
    assert (done.returncode, done.stdout, done.stderr) == (0, "same\n", "")
    soon = ("--max-wait", "0.5", "--cluster-key-file", running.key_file)
    with registry(*soon, state=running.state) as impatient:
        refused = run(impatient, "--label", "zone=b", GPUFERRY_TOKEN=token)
    assert "zone=b" in refused.stderr
    assert "error 46" in refused.stderr
    wrong = run(running, GPUFERRY_TOKEN=token[:-2] + "AA")
    assert "wrong token" in wrong.stderr


def test_a_program_with_the_registrys_own_token(running: Registry) -> None:
    done = run(running, GPUFERRY_TOKEN=running.token)
    assert (done.returncode, done.stdout, done.stderr) == (0, "same\n", "")


class Circle:
    """A registry that sends every guest to itself; or one that does not know the token. Use as a context
    manager."""

    def __init__(self, token: bytes, impostor: bool = False) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self.key = secrets.token_bytes(32) if impostor else token
        self.guests = 0
        self.proofs_right = 0
        self._door = Door(listening, self._send_around)

    def __enter__(self) -> Circle:
        self._door.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def _send_around(self, connection: socket.socket) -> None:
        with connection:
            nonce = secrets.token_bytes(32)
            connection.sendall(handshake.greeting(nonce))
            _, body = read_frame(connection)
            claim = handshake.read_hello(body, nonce)
            expected = hmac.digest(self.key, claim.message, hashlib.sha256)
            self.proofs_right += claim.proof == expected
            self.guests += 1
            session_key, ticket = secrets.token_bytes(32), secrets.token_bytes(136)
            nonces = nonce + claim.fields.nonce
            connection.sendall(handshake.redirect(self.key, nonces, session_key, ticket, self.address))
            self.key = session_key

    def guest(self, token: str) -> subprocess.CompletedProcess[str]:
        settings = {"LD_PRELOAD": paths.guest_library(), "GPUFERRY_MONITOR": self.address}
        environment = os.environ | settings | {"GPUFERRY_TOKEN": token}
        return subprocess.run(
            INIT, env=environment, capture_output=True, text=True, timeout=harness.DEADLINE, check=False
        )


def test_no_more_than_three_redirects() -> None:
    with Circle(b"some token") as circle:
        done = circle.guest("some token")
    assert done.stdout == "46\n"
    assert "more than 3 times" in done.stderr
    assert (circle.guests, circle.proofs_right) == (4, 4)


def test_an_impostor_redirects_nobody() -> None:
    with Circle(b"some token", impostor=True) as circle:
        done = circle.guest("some token")
    assert done.stdout == "46\n"
    assert "impostor" in done.stderr
    assert circle.guests == 1
