"""A monitor is complete when it is built, and nothing of it runs before it is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.assembly import Monitor, build, occupy
from gpuferry.monitor.devices.choice import server_environment
from gpuferry.monitor.pool.adoption import LEDGER, Ledger
from gpuferry.monitor.service.runtime import RuntimeDirectory
from gpuferry.monitor.service.stopping import Stopping
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import Config


def config(folder: Path, **changes: Any) -> Config:
    """Of a monitor that occupies nothing outside the folder."""
    settings: dict[str, Any] = {
        "runtime": folder / "run",
        "token": b"0123456789abcdef",
        "simulated": True,
        "devices": 1,
        "listen": "127.0.0.1:0",
        "socket": str(folder / "guests.sock"),
        "http": "127.0.0.1:0",
        "state": str(folder / "state"),
        "server_command": ("false",),
    }
    return Config(**(settings | changes))


def test_what_is_built_is_whole_and_does_nothing(tmp_path: Path) -> None:
    async def main() -> Monitor:
        async with contextlib.AsyncExitStack() as stack:
            chosen = config(tmp_path, migration="auto")
            before = asyncio.all_tasks()
            monitor = build(chosen, occupy(chosen, stack), Stopping())
            assert asyncio.all_tasks() == before
            assert not monitor.pool.servers
            assert not (tmp_path / "run" / "endpoint").exists()
            assert monitor.balance
            assert monitor.rounds
            for listener in monitor.listeners:
                listener.close()
            await monitor.control.stop()
            return monitor

    monitor = asyncio.run(main())
    assert [listener.name.partition(":")[0] for listener in monitor.listeners] == ["unix", "127.0.0.1"]
    assert monitor.http_name.startswith("127.0.0.1:")


def test_a_start_that_fails_leaves_sessions_to_the_next_one(tmp_path: Path) -> None:
    """After a crash, say, with a port that is taken: the ledger went, and with it all that had survived."""
    runtime = RuntimeDirectory(tmp_path / "run")
    ledger = Ledger(runtime)
    ledger.reserve_numbers()
    os.close(runtime._lock)  # killed: nothing is removed

    async def start(**changes: Any) -> None:
        async with contextlib.AsyncExitStack() as stack:
            found = occupy(config(tmp_path, **changes), stack).ledger
            assert (found.inherited, found.secret) == (True, ledger.secret)
            found.take_over()

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="in use"):
        asyncio.run(start(listen=f"127.0.0.1:{taken.getsockname()[1]}"))
    asyncio.run(start())
    assert not (tmp_path / "run" / LEDGER).exists()


@pytest.mark.parametrize("checked", [True, False])
def test_kernels_can_be_held_to_their_own_memory_without_tenants(checked: bool) -> None:
    assert (server_environment(True, checked).get("GPUFERRY_SIM_CHECK") == "1") == checked


def test_a_start_that_fails_gives_everything_back(tmp_path: Path) -> None:
    """The second port is taken: the Unix socket and the runtime folder are free again."""

    async def attempt(chosen: Config) -> None:
        async with contextlib.AsyncExitStack() as stack:
            occupy(chosen, stack)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="Address already in use"):
            asyncio.run(attempt(config(tmp_path, listen=address)))
    assert not (tmp_path / "guests.sock").exists()
    asyncio.run(attempt(config(tmp_path)))


def test_a_registry_without_a_key_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUFERRY_CLUSTER_KEY", raising=False)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            chosen = config(tmp_path, registry="127.0.0.1:1")
            build(chosen, occupy(chosen, stack), Stopping())

    with pytest.raises(ConfigError, match="cluster key"):
        asyncio.run(main())


def test_a_folder_on_a_disk_is_not_made_where_the_disk_is_not_mounted(tmp_path: Path) -> None:
    """It would be on the disk of the system, and fill that."""

    async def attempt() -> None:
        async with contextlib.AsyncExitStack() as stack:
            chosen = config(tmp_path, disk=1 << 20, disk_folder=str(tmp_path / "scratch" / "gpuferry"))
            build(chosen, occupy(chosen, stack), Stopping())

    with pytest.raises(ConfigError, match="scratch/gpuferry: No such file"):
        asyncio.run(attempt())
    assert not (tmp_path / "scratch").exists()
