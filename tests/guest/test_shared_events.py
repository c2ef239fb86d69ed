"""What other processes may record is looked at when the program says so, not when the server comes to it."""

from __future__ import annotations

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer


def test_records_and_waits_are_there_when_they_return(server: FakeServer, guest: Guest) -> None:
    """Of an event of several processes each is answered; of any other none."""
    outcome = guest(
        """
start()
context = made("cuDevicePrimaryCtxRetain", 0)
for flags in (2, 4 | 2):
    event, before = made("cuEventCreate", flags), stats()["round_trips"]
    ok("cuEventRecord", event, 0)
    ok("cuStreamWaitEvent", 0, event, 0)
    ok("cuCtxRecordEvent", context, event)
    ok("cuCtxWaitEvent", context, event)
    print(stats()["round_trips"] - before)
"""
    )
    assert outcome.stdout == "0\n4\n", outcome.stderr
