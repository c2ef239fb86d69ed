"""Somebody's program runs on a GPU server that a hostile guest hammers: its answer is right."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from tests.apiserver.guest import Ended, Guest
from tests.fuzz.changing import Changing
from tests.fuzz.hostile import Hostile
from tests.fuzz.parsers import TARGETS
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import native_environment, run
from tests.monitor.fake_guest import connect, hello_frame, read_greeting
from tests.resume.running import built


def sessions(running: Monitor, hostile: Hostile, inputs: int, beside: threading.Event) -> None:
    """One after another, each with frames of every kind. One that is refused is followed by the next. They go
    on until the program has run beside them.
    """
    while hostile.frames < inputs or not beside.is_set():
        with contextlib.suppress(Ended), connect(running.tcp) as connection:
            hello = hello_frame(read_greeting(connection), running.token, program=b"hostile")
            connection.sendall(hello)
            guest = Guest(connection)
            guest.receive_welcome()
            hostile.attack(guest)


def strangers(running: Monitor, inputs: int, seed: int) -> None:
    """At the door, without the token, with everything but a sound HELLO."""
    target = TARGETS["hello"]
    changing = Changing(list(target.sound()), seed, target.words)
    for _ in range(inputs):
        with connect(running.tcp) as connection:
            try:
                connection.sendall(changing.next())
                connection.shutdown(1)
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass  # it was refused before it had said all


def until_it_ends(attack: Callable[..., None], *arguments: object) -> None:
    """Attackers have nothing to say when the monitor is gone; whether all was said is looked at later."""
    with contextlib.suppress(OSError, EOFError):
        attack(*arguments)


def hammer(inputs: int, seed: int) -> int:
    """How often the program ran meanwhile, and once afterwards."""
    program, hostile = built("vector_add_driver"), Hostile(seed)
    native = run([program], native_environment())
    beside = threading.Event()
    with monitor("--pool", "2", "--log-level", "warning", in_clear=True) as running:
        attackers = [
            threading.Thread(target=until_it_ends, args=(sessions, running, hostile, inputs, beside)),
            threading.Thread(target=until_it_ends, args=(strangers, running, inputs // 4, seed)),
        ]
        for each in attackers:
            each.start()
        runs, over = 0, False
        while not over:
            over = not any(each.is_alive() for each in attackers)
            outcome = running.run([program])
            beside.set()
            assert (outcome.status, outcome.stdout) == (0, native.stdout), outcome.stderr
            runs += 1
    assert hostile.frames >= inputs
    return runs


def test_a_program_beside_a_hostile_guest() -> None:
    assert hammer(600, 1) >= 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_program_beside_a_hostile_guest_for_long() -> None:
    runs = hammer(100_000, 2)
    print(f"fuzz: bystander: {runs} right answers beside 100000 frames and 25000 strangers")
