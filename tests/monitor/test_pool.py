"""How many API servers there are, and what their contexts take."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from gpuferry.monitor.pool import api_server
from gpuferry.monitor.pool.api_server import ApiServer, PoolListener
from gpuferry.monitor.pool.health import Health
from gpuferry.monitor.pool.pool import Pool
from gpuferry.monitor.settings.monitor import Config

GIB = 1 << 30


def test_contexts_beyond_the_headroom_are_withheld(tmp_path: Path) -> None:
    config = Config(
        runtime=tmp_path,
        token=b"",
        simulated=False,
        devices=1,
        pool=2,
        min_idle=4,
        server_command=("sh", "-c", "exec sleep 600"),  # whatever options it gets
    )
    withheld: list[tuple[int, int]] = []

    class Withheld(PoolListener):
        def contexts_withheld(self, device: int, size: int) -> None:
            withheld.append((device, size))

    async def life() -> None:
        def spare(device: int, uuid: bytes) -> int:
            return 4 * GIB - sum(size for _, size in withheld[-1:])

        pool = Pool(config, {}, None, spare, Withheld())
        pool.start()
        assert len(pool.servers) == 4
        assert withheld[-1] == (0, 2 * config.context_cost)
        while not all(server.pid for server in pool.servers.values()):
            await asyncio.sleep(0.01)
        await pool.stop()

    asyncio.run(life())
    assert config.context_cost > 0
    assert withheld == [(0, more * config.context_cost) for more in (0, 0, 1, 2, 1, 0, 0, 0)]


async def one_that_exits(runtime: Path) -> ApiServer:
    """With status 9, without a word; when it is gone."""
    command = ("sh", "-c", "exit 9")
    config = Config(runtime=runtime, token=b"", simulated=False, devices=1, pool=1, server_command=command)
    server = ApiServer(0, Health(), lambda _: None, PoolListener())
    await server.run(config, os.environ, None, asyncio.Semaphore(1))
    return server


def test_how_one_exited_is_told_however_late_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is closed before that."""
    monkeypatch.setattr(api_server, "LAST_WORDS", 0.0)
    assert asyncio.run(one_that_exits(tmp_path)).end_reason == "exited with status 9"


def test_one_that_is_gone_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another's by then."""
    server = asyncio.run(one_that_exits(tmp_path))
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    server.kill()
    assert not killed
