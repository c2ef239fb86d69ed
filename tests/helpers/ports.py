"""Ports for servers that are killed and come back: nobody else may get theirs meanwhile."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

FIRST = 15000  # below are those that somebody may know by heart
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def lasting_ports(count: int) -> list[int]:
    """Free ones of loopback, beyond those that the kernel gives to connections and to port 0."""
    beyond = int(EPHEMERAL.read_text().split()[0])
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.SystemRandom().randrange(FIRST, beyond)
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found
