"""What a wait has told is known: the server is not asked again."""

from __future__ import annotations

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame

NOT_READY = 600


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
