"""A process of an earlier monitor, which ends when it likes."""

from __future__ import annotations

import asyncio
import subprocess

from gpuferry.monitor.pool.process import Adopted
from gpuferry.monitor.service.processes import start_time


def test_one_that_is_gone_before_anybody_noticed_can_be_killed() -> None:
    """What is left of it is cleared up behind this: an error here would leave its socket and its record."""

    async def ends_unnoticed() -> None:
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        adopted = Adopted(process.pid, start_time(process.pid), process.pid, None)
        process.kill()
        process.wait()
        adopted.kill()
        assert await adopted.wait() is None

    asyncio.run(ends_unnoticed())
