"""Sessions of a real monitor, held by guests in Python: they can do what no program would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.apiserver.guest import Guest
from tests.monitor.fake_guest import connect, hello_frame, read_greeting
from tests.monitor.harness import Monitor

PAGE = 2 << 20


def open_session(monitor: Monitor, **changes: Any) -> Guest:
    """From connect to WELCOME."""
    connection = connect(monitor.address, 60.0)
    try:
        connection.sendall(hello_frame(read_greeting(connection), monitor.token, **changes))
        guest = Guest(connection)
        guest.receive_welcome()
    except BaseException:
        connection.close()
        raise
    return guest


@contextmanager
def session(monitor: Monitor, **changes: Any) -> Iterator[Guest]:
    """A session that ends as a program's does."""
    guest = open_session(monitor, **changes)
    with closing(guest.socket):
        yield guest
        guest.close()


TRIES = 20
BACK_WITHIN = 1.0  # seconds, the promise: everything freed, and the pool whole, after the death of a guest

# Of tests that kill a guest: whether all is well again; and (make test-all) whether in time.
each_promise = pytest.mark.parametrize("within", [None, pytest.param(BACK_WITHIN, marks=pytest.mark.slow)])


def back_again(kill: Callable[[], Callable[[], object]], within: float | None) -> None:
    """`kill` ends a guest and returns how to wait until all is well again, which must come true each time.

    That it takes no longer than `within` (seconds) must be seen once: other work can only delay it, so that
    many tries say nothing against the promise.
    """
    taken: list[float] = []
    while len(taken) < TRIES:
        wait = kill()
        start = time.monotonic()
        wait()
        taken.append(time.monotonic() - start)
        if within is None or taken[-1] <= within:
            return
    raise AssertionError(f"back after {taken} seconds, {within} were promised")


class Bystander:
    """A session that goes on working, and notices if it is disturbed."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.address = guest.map(2)
        self.pattern = bytes(range(256)) * 1024
        guest.write(self.address, self.pattern)

    def is_fine(self) -> None:
        """What it wrote is there, and it can write more."""
        assert self.guest.read(self.address, len(self.pattern)) == self.pattern
        self.pattern = self.pattern[1:] + self.pattern[:1]
        self.guest.write(self.address, self.pattern)
        assert self.guest.read(self.address, len(self.pattern)) == self.pattern
        reply = self.guest.sync()
        assert (reply.status, reply.latched) == (0, 0)
