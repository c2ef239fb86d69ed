"""The monitor's side of the arbiter, with an arbiter that the test plays."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, cast

import pytest
from gpuferry.monitor.arbiter.office import Office
from gpuferry.monitor.policy.sharing import Sharing


@pytest.mark.parametrize("turns", range(8))
def test_a_monitor_that_stops_is_not_held_up_by_what_the_arbiter_just_said(turns: int) -> None:
    """A word comes, and so many turns of the loop later the monitor stops: it ends, whoever comes first."""

    async def main() -> None:
        office = Office(Sharing(), 0, lambda: (), cast(Any, None))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.setblocking(False)
            listening = asyncio.ensure_future(office._listen(ours))
            await asyncio.sleep(0.01)
            theirs.send(json.dumps({"reported": True}).encode())
            for _ in range(turns):
                await asyncio.sleep(0)
            listening.cancel()
            await asyncio.wait({listening}, timeout=60.0)
            ended = listening.done()
            listening.cancel()
        assert ended

    asyncio.run(main())
