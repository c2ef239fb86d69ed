"""What other processes may look at is there when a call returns, not when the server comes to it."""

from __future__ import annotations

import pytest

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer

SHARING = {
    "an event": """ok("cuIpcGetEventHandle", handle, made("cuEventCreate", 4 | 2))""",
    "memory": """ok("cuIpcGetMemHandle", handle, made("cuMemAlloc_v2", 4096))""",
    "physical memory": """
physical = made("cuMemCreate", 2 << 20, struct.pack("4I16x", 1, 1, 1, 0), 0)
assert waits("cuMemExportToShareableHandle", handle, physical, 1, 0) == 2, "it, and what was copied before"
""",
}


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


@pytest.mark.parametrize("what", SHARING)
def test_others_see_what_a_call_waits_for_in_cuda(guest: Guest, what: str) -> None:
    """A blocking copy in, and a free: nobody waits for them until the process shares something."""
    outcome = guest(
        f"""
def waits(name, *arguments):
    before = stats()["round_trips"]
    ok(name, *arguments)
    return stats()["round_trips"] - before

def look():
    memory, freed = made("cuMemAlloc_v2", 4096), made("cuMemAlloc_v2", 4096)
    print(waits("cuMemcpyHtoD_v2", memory, bytes(64), 64), waits("cuMemFree_v2", freed))

start()
handle = ctypes.create_string_buffer(64)
look()
{SHARING[what]}
look()
"""
    )
    assert outcome.stdout == "0 0\n1 1\n", outcome.stderr
