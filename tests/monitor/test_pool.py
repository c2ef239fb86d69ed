"""How many API servers there are, and what their contexts take."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from gpuferry.monitor.pool import api_server
from gpuferry.monitor.pool import pool as pool_module
from gpuferry.monitor.pool.api_server import ApiServer, Neighbourhood, PoolListener, State
from gpuferry.monitor.pool.channel import Channel
from gpuferry.monitor.pool.health import HOPELESS, Health
from gpuferry.monitor.pool.pool import Pool
from gpuferry.monitor.pool.process import Child, Launch
from gpuferry.monitor.settings.monitor import Config
from gpuferry.monitor.views.stats.observatory import Observatory
from gpuferry.monitor.views.status import StatusReporter
from gpuferry.specs._generated import control_pb2, node_pb2

from tests.monitor.harness import DEADLINE

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

        pool = Pool(config, {}, None, None, spare, Withheld())
        pool.start()
        assert len(pool.servers) == 4
        assert withheld[-1] == (0, 2 * config.context_cost)
        while not all(server.pid for server in pool.servers.values()):
            await asyncio.sleep(0.01)
        await pool.stop()

    asyncio.run(life())
    assert config.context_cost > 0
    assert withheld == [(0, more * config.context_cost) for more in (0, 0, 1, 2, 1, 0, 0, 0)]


async def one_that_exits(how: str = "exit 9") -> ApiServer:
    """Without a word; when it is gone."""
    command = ("sh", "-c", how, "sh")
    server = ApiServer((0,), Health(), lambda _: None, PoolListener(), Neighbourhood(False))
    await server.run(Launch(command, os.environ, 60.0), None, asyncio.Semaphore(1))
    return server


def test_how_one_exited_is_told_however_late_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is closed before that."""
    monkeypatch.setattr(api_server, "LAST_WORDS", 0.0)
    assert asyncio.run(one_that_exits()).end_reason == "exited with status 9"


SPEAKS = """
import socket, sys
from gpuferry.specs._generated import node_pb2
control = socket.socket(fileno=int(sys.argv[sys.argv.index("--control-fd") + 1]))
for message in [{"stats": {}}] * 5 + [{"failed": {"reason": "it has no heart"}}]:
    control.send(node_pb2.FromServer(**message).SerializeToString())
"""


def test_what_one_said_before_it_ended_counts_however_slowly_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy monitor took a keeper that had moved its session on for one that had lost it."""
    receive = Channel.receive

    async def slowly(channel: Channel) -> node_pb2.FromServer | None:
        await asyncio.sleep(0.05)
        return await receive(channel)

    monkeypatch.setattr(Channel, "receive", slowly)
    monkeypatch.setattr(api_server, "LAST_WORDS", 0.1)
    server = asyncio.run(one_that_exits(f"exec {sys.executable} -c '{SPEAKS}' \"$@\""))
    assert server.end_reason == "it has no heart"


def test_a_signal_without_a_name_is_told_too() -> None:
    """One that was broken into sends itself whichever it likes, and is replaced as any."""
    assert asyncio.run(one_that_exits("kill -40 $$")).end_reason == "killed by signal 40"


def test_a_status_beyond_all_signals_is_none() -> None:
    """Bubblewrap tells of the signal that ended a jail by a status, as which the jail may exit, too."""

    class Bubblewrap:
        def __init__(self, status: int) -> None:
            self.pid, self.status = 1, status

        async def wait(self) -> int:
            return self.status

    def told(status: int) -> int:
        return asyncio.run(Child(cast(Any, Bubblewrap(status)), 1, cast(Any, "a jail")).wait())

    assert [told(status) for status in (9, 128, 137, 192, 193, 255)] == [9, 128, -9, -64, 193, 255]


def test_one_that_is_gone_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another's by then."""
    server = asyncio.run(one_that_exits())
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    server.kill()
    assert not killed


@pytest.mark.parametrize(
    ("reason", "told"), [("", "killed by SIGKILL"), ("it took too much", "it took too much")]
)
def test_one_that_is_killed_while_it_is_started(reason: str, told: str) -> None:
    """There was no process yet, and what was started stayed until it was too late to get ready."""

    async def life() -> ApiServer:
        server = ApiServer((0,), Health(), lambda _: None, PoolListener(), Neighbourhood(False))

        async def meanwhile(limit: float) -> None:
            server.kill(reason)

        launch = Launch(("sh", "-c", "exec sleep 600"), os.environ, 10.0, ahead=meanwhile)
        await server.run(launch, None, asyncio.Semaphore(1))
        return server

    assert asyncio.run(life()).end_reason == told


def test_one_that_is_killed_before_its_turn_is_not_started() -> None:
    async def life() -> ApiServer:
        server = ApiServer((0,), Health(), lambda _: None, PoolListener(), Neighbourhood(False))
        turns = asyncio.Semaphore(0)
        running = asyncio.ensure_future(server.run(Launch(("false",), os.environ, 10.0), None, turns))
        await asyncio.sleep(0)
        server.kill()
        turns.release()
        await running
        return server

    server = asyncio.run(life())
    assert (server.pid, server.end_reason, server.gone) == (0, "not wanted any more", True)


SAYS_WHY = """
import socket, sys
from gpuferry.specs._generated import node_pb2
failed = node_pb2.FromServer(failed=node_pb2.Failed(reason="closed its control socket"))
with socket.socket(fileno=int(sys.argv[sys.argv.index("--control-fd") + 1])) as control:
    control.send(failed.SerializeToString())
sys.exit(3)
"""


def test_what_one_says_itself_stands_whatever_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, these words of its own were taken for the monitor's, and replaced by how it exited."""

    async def life() -> ApiServer:
        server = ApiServer((0,), Health(), lambda _: None, PoolListener(), Neighbourhood(False))
        monkeypatch.setattr(server, "kill", lambda: None)  # it exits by itself
        await server.run(
            Launch((sys.executable, "-c", SAYS_WHY), os.environ, 120.0), None, asyncio.Semaphore(1)
        )
        return server

    assert asyncio.run(life()).end_reason == "closed its control socket"


def test_a_device_without_api_servers_is_a_problem_even_without_words(tmp_path: Path) -> None:
    config = Config(runtime=tmp_path, token=b"", simulated=True, devices=1)

    async def life() -> dict[int, str]:
        pool = Pool(config, {}, None, None, lambda device, uuid: 0, PoolListener())
        pool.lose(0, "")
        return pool.problems()

    assert asyncio.run(life()) == {0: ""}


def test_where_sessions_go_on_and_no_more_api_servers_start_the_device_is_failing(tmp_path: Path) -> None:
    """It was up and the server ready, whoever came waited, and only the log said why."""
    config = Config(runtime=tmp_path, token=b"", simulated=True, devices=1)

    def said(pool: Pool) -> tuple[object, bool, list[str]]:
        mocks = {"broker": MagicMock(draining=False), "reporter": MagicMock(), "accounting": MagicMock()}
        status = StatusReporter(config, pool, MagicMock(), MagicMock(), [], "", MagicMock())
        return status._device_state(0), *Observatory(pool=pool, announcer=MagicMock(), **mocks).readiness()

    async def life() -> None:
        pool = Pool(config, {}, None, None, lambda device, uuid: 0, PoolListener())
        busy, failed = (
            ApiServer((0,), pool._health[0], lambda _: None, PoolListener(), Neighbourhood(False))
            for _ in range(2)
        )
        busy.ready, busy.state, failed.end_reason = node_pb2.Ready(), State.BUSY, "no memory"
        pool.servers[busy.key] = busy
        for _ in range(HOPELESS):
            assert said(pool) == (control_pb2.DEVICE_STATE_UP, True, [])
            pool._replace(failed)
        why = ["no API server is ready for a guest", "gpu 0: no memory"]
        assert said(pool) == (control_pb2.DEVICE_STATE_FAILING, False, why)
        busy.state = State.IDLE  # its session is over: it takes another
        assert said(pool) == (control_pb2.DEVICE_STATE_UP, True, why[1:])

    asyncio.run(life())


def test_why_no_api_server_starts_does_not_say_where_ours_is(tmp_path: Path) -> None:
    """Guests of several GPUs and everybody who reaches `/readyz` are told."""
    config = Config(
        runtime=tmp_path, token=b"", simulated=False, devices=1, server_command=("/opt/of/operator/python",)
    )

    async def life() -> str:
        pool = Pool(config, {}, None, None, lambda device, uuid: 0, PoolListener())
        await pool.start_own((0,), 0).ready_or_gone.wait()
        while pool.servers:
            await asyncio.sleep(0.001)
        return pool.last_failure

    assert asyncio.run(life()) == "python: No such file or directory"


def test_who_comes_and_goes_while_its_api_server_starts_fills_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each time wrote a warning, and was a failure that others were told of."""
    config = Config(runtime=tmp_path, token=b"", simulated=False, devices=2, server_command=("sleep", "600"))

    async def life() -> Pool:
        pool = Pool(config, {}, None, None, lambda device, uuid: 0, PoolListener())
        for _ in range(20):
            pool.start_own((0, 1), 0).abandon("its session does not wait any more")
        while pool.servers:
            await asyncio.sleep(0.001)
        return pool

    pool = asyncio.run(life())
    assert (pool.failures, pool.last_failure) == (0, "")
    assert capsys.readouterr().out.count("server ended") <= 5


def test_between_the_grants_of_a_crowd_nobody_looks_at_all_api_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That took longer than a grant, in each round of the loop in which there was one."""
    monkeypatch.setattr(pool_module, "FILL_SECONDS", 3600.0)
    config = Config(
        runtime=tmp_path, token=b"", simulated=False, devices=1, pool=3, server_command=("sleep", "600")
    )
    looks: list[int] = []

    async def life() -> None:
        pool = Pool(config, {}, None, None, lambda device, uuid: 4 * GIB, PoolListener())
        pool.start()
        monkeypatch.setattr(pool, "_fill", looks.append)
        for session, server in enumerate([*pool.servers.values()], 1):
            server.serve(session)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not looks
        await pool.stop()

    asyncio.run(life())


def test_no_free_descriptor_is_no_fault_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that wait may have all of them. Each failed start made the next one later, and kept its
    turn to start for ever.
    """
    config = Config(
        runtime=tmp_path, token=b"", simulated=False, devices=1, pool=1, server_command=("sleep", "600")
    )
    tried: list[float] = []

    def crowded() -> None:
        tried.append(asyncio.get_running_loop().time())
        monkeypatch.setattr(pool_module, "CROWDED_SECONDS", 0.01 if len(tried) < 12 else 100.0)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def life() -> None:
        pool = Pool(config, {}, None, None, lambda device, uuid: 4 * GIB, PoolListener())
        pool.start()
        while len(tried) < 12:
            await asyncio.sleep(0.01)
        await pool.stop()

    monkeypatch.setattr(api_server, "channel_pair", crowded)
    asyncio.run(asyncio.wait_for(life(), DEADLINE))
