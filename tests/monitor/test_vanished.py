"""A guest whose machine vanished: nothing comes any more, and nothing says so."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from gpuferry.monitor.door.listener import listen_tcp

HERE, THERE = "10.213.77.1", "10.213.77.2"
NOTICED = 30  # seconds
COMES = f"""
import socket, sys
connection = socket.create_connection(("{HERE}", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.read()
"""
pytestmark = pytest.mark.slow


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def other_machine() -> Iterator[str]:
    """A network namespace at the other end of a cable."""
    if os.geteuid() != 0:
        pytest.skip("needs root: another machine is a network namespace")
    name = f"gf{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", f"{HERE}/30", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        yield name
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", f"{name}a")
        ip("netns", "del", name)


@pytest.mark.parametrize("said", [b"a reply", b""], ids=["data", "idle"])
def test_unacknowledged_data_breaks_the_connection(other_machine: str, said: bytes) -> None:
    """As an accepted connection is handed to an API server, whether or not anything is said on it, after
    20 s: however long TCP would try.
    """
    with listen_tcp(f"{HERE}:0") as listening, contextlib.ExitStack() as stack:
        listening.setblocking(True)
        guest = stack.enter_context(
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    other_machine,
                    sys.executable,
                    "-c",
                    COMES,
                    str(listening.getsockname()[1]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        stack.callback(guest.kill)
        connection, _ = listening.accept()
        stack.enter_context(connection)
        assert guest.stdout
        assert guest.stdout.readline() == b"connected\n"
        ip("-n", other_machine, "addr", "flush", "dev", f"{other_machine}b")  # what comes there is dropped
        connection.sendall(said)
        poller = select.poll()
        poller.register(connection, select.POLLRDHUP)  # as an API server waits
        assert poller.poll(NOTICED * 1000), "nobody noticed"
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        assert found in (
            errno.ETIMEDOUT,
            errno.EHOSTUNREACH,
        )  # the latter where the neighbour is forgotten too
