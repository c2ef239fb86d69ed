"""Waiting that loses nothing: monitor/service/waiting.py."""

from __future__ import annotations

import asyncio
import gc
import secrets
from pathlib import Path

import pytest
from gpuferry.monitor.cluster.registry.config import RegistryConfig, RegistryOptions
from gpuferry.monitor.cluster.registry.daemon import Registry
from gpuferry.monitor.cluster.registry.directory import Directory
from gpuferry.monitor.service.waiting import until, within
from gpuferry.monitor.settings.sources import fields_of, load


class Died(Exception):
    pass


def test_within_returns_what_came_in_time() -> None:
    async def main() -> None:
        assert await within(60.0, asyncio.sleep(0, "result")) == "result"
        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, asyncio.sleep(60))
        with pytest.raises(Died):
            await within(60.0, _fail())

    asyncio.run(main())


async def _fail() -> None:
    raise Died


def test_within_ends_what_is_late() -> None:
    async def main() -> None:
        late = asyncio.ensure_future(asyncio.sleep(60))
        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, late)
        await asyncio.wait({late})
        assert late.cancelled()

    asyncio.run(main())


def test_within_knows_whose_cancellation_it_was() -> None:
    """That of the work is no reason to end for who waits, and that of who waits is never lost."""

    async def main() -> None:
        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(60.0, work))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.TimeoutError):
            await waiting

        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(60.0, work))
        await asyncio.sleep(0)
        work.set_result(None)  # in the same turn of the loop: wait_for of Python 3.11 returns
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_within_leaves_no_complaint_of_what_nobody_looks_at() -> None:
    """A request's body ends with its connection, whose handler is cancelled at the same moment."""

    async def hung_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise Died

    async def main() -> list[str]:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said["message"]))
        waiting = asyncio.ensure_future(within(60.0, hung_up()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        del waiting
        gc.collect()
        return complaints

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_until_raises_what_ended_a_task(how: str) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(_fail() if how == "fails" else asyncio.sleep(60))
        others = [asyncio.ensure_future(asyncio.sleep(0)), asyncio.ensure_future(asyncio.sleep(60)), task]
        if how != "fails":
            task.cancel()
        await until(asyncio.Event(), others)

    with pytest.raises(Died if how == "fails" else RuntimeError):
        asyncio.run(asyncio.wait_for(main(), 30))


def test_until_ends_when_it_is_time() -> None:
    async def main() -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, stopping.set)
        await until(stopping, [asyncio.ensure_future(asyncio.sleep(0))])

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_registry_whose_view_fails_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send no guest anywhere, for ever, and look alive."""
    monkeypatch.setattr(Directory, "follow", lambda _: _fail())
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUFERRY_CONFIG", "/dev/null")
    options = load(RegistryOptions, "registry", {"listen": "127.0.0.1:0", "control": "127.0.0.1:0"}, None)
    key = secrets.token_hex(32).encode()
    config = RegistryConfig(
        **fields_of(options.values),
        runtime=tmp_path / "run",
        token=key,
        cluster_key=key,
        cluster_key_path="",
    )
    with pytest.raises(Died):
        asyncio.run(asyncio.wait_for(Registry(config, False).run(), 30))
