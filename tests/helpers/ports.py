"""Ports for servers that are killed and come back: nobody else may get theirs meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def lasting_ports(count: int) -> Iterator[list[int]]:
    """Ports of loopback that stay reserved: each is bound here, and whoever is told of it may listen there.
    The kernel gives a port that is bound neither to a connection nor to port 0. Who names it may bind it too:
    both say SO_REUSEADDR, as all servers do, and here nobody listens.
    """
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in held]
