"""What a wait has told is known: the server is not asked again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame

NOT_READY = 600
PPOLL = "271"  # of x86-64


def asked(server: FakeServer, name: str) -> int:
    return server.names.count(name)


def test_a_complete_event_is_known(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
event = made("cuEventCreate", 0)
ok("cuEventQuery", event)
for _ in range(3):
    ok("cuEventRecord", event, 0)
    for _ in range(10):
        ok("cuEventQuery", event)
        ok("cuEventSynchronize", event)
print(stats()["round_trips"])
"""
    )
    assert outcome.stdout == "3\n"
    assert (asked(server, "cuEventQuery"), asked(server, "cuEventSynchronize")) == (3, 0)


def test_an_event_that_is_not_ready_is_asked_for_again(server: FakeServer, guest: Guest) -> None:
    left = [Answer(status=NOT_READY), Answer(status=NOT_READY)]

    def answer(frame: Frame) -> Answer:
        return left.pop() if frame.name == "cuEventQuery" and left else Answer()

    server.answer = answer
    outcome = guest(
        """
start()
event = made("cuEventCreate", 0)
ok("cuEventRecord", event, 0)
print(*(cu("cuEventQuery", event) for _ in range(5)))
"""
    )
    assert outcome.stdout == f"{NOT_READY} {NOT_READY} 0 0 0\n"
    assert asked(server, "cuEventQuery") == 3


def test_an_idle_stream_is_known_until_something_is_sent(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
one, other = made("cuStreamCreate", 1), made("cuStreamCreate", 1)
event = made("cuEventCreate", 0)
ok("cuStreamSynchronize", one)
ok("cuStreamSynchronize", one)
before = stats()["round_trips"]
ok("cuStreamSynchronize", other)      # another stream is another question
ok("cuEventRecord", event, one)
ok("cuStreamSynchronize", one)
ok("cuStreamSynchronize", one)
ok("cuStreamSynchronize", 0)
ok("cuStreamSynchronize", 0)
print(before, stats()["round_trips"])
"""
    )
    assert outcome.stdout == "1 4\n"


def test_a_blocking_copy_leaves_its_stream_idle(server: FakeServer, guest: Guest) -> None:
    server.answer = lambda frame: Answer(body=bytes(64) if frame.name == "sessionCopyOut" else None)
    outcome = guest(
        """
start()
memory = made("cuMemAlloc_v2", 1 << 20)
data = ctypes.create_string_buffer(64)
ok("cuMemcpyDtoH_v2", data, memory, 64)
ok("cuStreamSynchronize", 0)
ok("cuStreamSynchronize", 0)
print(stats()["round_trips"])
"""
    )
    assert outcome.stdout == "1\n"
    assert asked(server, "cuStreamSynchronize") == 0


def test_a_stream_that_failed_is_not_idle(server: FakeServer, guest: Guest) -> None:
    left = [Answer(status=1)]

    def answer(frame: Frame) -> Answer:
        return left.pop() if frame.name == "cuStreamSynchronize" and left else Answer()

    server.answer = answer
    outcome = guest(
        'start(); made("cuEventCreate", 0); print(*(cu("cuStreamSynchronize", 0) for _ in range(3)))'
    )
    assert outcome.stdout == "1 0 0\n"
    assert asked(server, "cuStreamSynchronize") == 2


def test_a_handler_of_a_signal_that_interrupts_a_wait_may_wait(server: FakeServer, guest: Guest) -> None:
    """It reads the other's answer as well as its own: a program saves its results when it is told to end."""
    first: list[Frame] = []

    def answer(frame: Frame) -> Answer | None:
        if frame.name != "cuStreamSynchronize":
            return Answer()
        if not first:
            assert server.hello is not None
            pid = server.hello.pid
            while Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0] != PPOLL:
                time.sleep(0.001)
            first.append(frame)
            os.kill(pid, signal.SIGUSR1)
            return None
        server.reply(first[0], Answer())
        return Answer()

    server.answer = answer
    outcome = guest(
        """
start()
one, other = made("cuStreamCreate", 1), made("cuStreamCreate", 1)
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def handler(number):
    print("handler", cu("cuStreamSynchronize", other))
ctypes.CDLL(None).signal(10, handler)  # Python's own would run behind the call
print("program", cu("cuStreamSynchronize", one))
"""
    )
    assert outcome.stdout == "handler 0\nprogram 0\n"
