"""`--mps`: the monitor starts NVIDIA's control daemon, watches it, and lets it quit. The daemon here stands
in for it, and the simulated device for a GPU, in the place where a driver lies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpuferry.guest import paths
from gpuferry.monitor.cli.checks import sharing
from gpuferry.monitor.pool import mps
from gpuferry.monitor.pool.mps import Mps, MpsError, percentage
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import check_mps, without_effect
from gpuferry.monitor.settings.monitor_options import MonitorOptions
from gpuferry.specs._generated import control_pb2

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import server_environment
from tests.helpers.warm import CLI
from tests.migration.gate import attempts
from tests.mps import stand_in
from tests.residency.lodgers import MIB, Lodger, Operator

DEADLINE = 120.0
PATIENT = ("READY_SECONDS", "ANSWER_SECONDS", "QUIT_SECONDS")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the stand-in's, which is in PATH. Not below pytest's own: sockets are made in it. However
    long it takes to start and to answer, it is neither mute nor replaced.
    """
    for constant in PATIENT:
        monkeypatch.setattr(mps, constant, DEADLINE)
    with tempfile.TemporaryDirectory(prefix="gf-mps-", dir="/tmp") as name:
        folder = Path(name, "bin")
        folder.mkdir()
        shutil.copy(stand_in.__file__, folder / stand_in.NAME)
        (folder / stand_in.NAME).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("GPUFERRY_TEST_MPS", name)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        yield Path(name)


def asked(told: Path) -> list[str]:
    """What daemons were asked: their process ids, and the commands."""
    return (told / "asked").read_text().splitlines()


@contextlib.asynccontextmanager
async def kept(folder: Path):  # type: ignore[no-untyped-def]
    found = Mps(folder, mps.find())
    task = asyncio.ensure_future(found.run())
    try:
        await found.ready(DEADLINE)
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_is_started_and_told_to_quit(told: Path) -> None:
    async def check() -> None:
        async with kept(told / "mps") as found:
            pid = found.pid
            assert alive(pid)
            assert found.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(told / "mps" / "pipe")
        await found.stop()
        assert not alive(pid)
        assert asked(told)[-1] == f"{pid} quit"

    asyncio.run(check())


@pytest.mark.system
def test_a_daemon_that_crashes_is_replaced(told: Path) -> None:
    async def check() -> None:
        async with kept(told / "mps") as found:
            first = found.pid
            os.kill(first, signal.SIGKILL)
            while found.starts < 2:
                await asyncio.sleep(0.01)
            await found.ready(DEADLINE)
            assert found.pid not in (0, first)
            assert alive(found.pid)
        await found.stop()

    asyncio.run(check())


@pytest.mark.system
def test_a_daemon_that_is_mute_is_replaced(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(mps, "ANSWER_SECONDS", 1.0)

    async def check() -> None:
        async with kept(told / "mps") as found:
            first = found.pid
            (told / "mute").touch()
            while alive(first):
                await asyncio.sleep(0.01)
            with pytest.raises(MpsError, match="does not answer"):
                await found.ready(0.01)
            (told / "mute").unlink()
            await found.ready(DEADLINE)
            assert found.pid != first
        await found.stop()

    asyncio.run(check())


@pytest.mark.system
def test_the_next_monitor_finds_the_daemon_of_the_one_before(told: Path) -> None:
    async def check() -> None:
        async with kept(told / "mps") as before:
            pid = before.pid
        async with kept(told / "mps") as found:
            assert (found.pid, found.starts) == (pid, 0)
        await found.stop()
        async with kept(told / "mps") as third:
            assert third.starts == 1
        await third.stop()

    asyncio.run(check())


def test_what_is_left_of_a_daemon_is_in_nobodys_way(told: Path) -> None:
    """Its pid is another process's by now."""
    pipes = told / "mps" / "pipe"
    pipes.mkdir(parents=True)
    (pipes / "control").touch()
    (pipes / f"{stand_in.NAME}.pid").write_text(f"{os.getpid()}\n")

    async def check() -> None:
        async with kept(told / "mps") as found:
            assert (found.starts, found.pid != os.getpid()) == (1, True)
        await found.stop()

    asyncio.run(check())


def test_a_daemon_that_does_not_come_up(told: Path) -> None:
    (told / "broken").touch()

    async def check() -> None:
        found = Mps(told / "mps", mps.find())
        task = asyncio.ensure_future(found.run())
        with pytest.raises(MpsError, match="does not answer"):
            await found.ready(0.5)
        (told / "broken").unlink()
        await found.ready(DEADLINE)
        task.cancel()
        await asyncio.wait([task])
        await found.stop()

    asyncio.run(check())


@pytest.mark.parametrize(("limit", "percent"), [(1000, 0), (999, 100), (600, 60), (601, 61), (1, 1), (5, 1)])
def test_the_percentage_of_a_limit(limit: int, percent: int) -> None:
    assert percentage(limit) == percent


def test_no_program_no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="not in PATH"):
        mps.find()


# -- what doctor says

GPUS = [(9, 0), "off"], [(8, 0), "on"], [(6, 1), "none"], [(3, 0), "none"]


def test_doctor_says_what_gpus_can_do(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "python", lambda code, environment: (0, json.dumps(GPUS)))
    check = sharing.sharing({})
    assert (check.result, check.detail) == (
        "ok",
        "GPU 0: MIG can be switched on, MPS with percentages; GPU 1: MIG is on, MPS with percentages; "
        f"GPU 2: no MIG, MPS without percentages; GPU 3: no MIG, no MPS; {told}/bin/{stand_in.NAME}",
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    assert sharing.sharing({}).next_step == f"for --mps install {stand_in.NAME}, which is not in PATH"


def test_doctor_asks_nvml() -> None:
    """The simulated one, which knows MIG."""
    library = str(Path(paths.simulated_nvml()).parent)
    check = sharing.sharing({**os.environ, "LD_LIBRARY_PATH": library, "GPUFERRY_SIM_MIG": "2"})
    assert check.detail.startswith("GPU 0: MIG is on, MPS with percentages")
    assert sharing.sharing({**os.environ, "LD_LIBRARY_PATH": "/nonexistent"}).result == "note"


# -- a monitor


@contextlib.contextmanager
def with_mps(told: Path, *options: str, **more: str) -> Iterator[Monitor]:
    """On a machine whose driver is the simulated device."""
    driver = told / "driver"
    shutil.copytree(Path(paths.simulated_driver()).parent, driver)
    environment = {"GPUFERRY_DEVICE": "gpu", "LD_LIBRARY_PATH": str(driver), "GPUFERRY_TEST_MPS": str(told)}
    environment |= {"PATH": os.environ["PATH"], "GPUFERRY_STATE_DIR": str(told / "state")} | more
    flags = ("--mps", "--jail", "off", "--pool", "2", "--headroom", "0")
    patient = {f"{mps.__name__}:{constant}": DEADLINE for constant in PATIENT}
    with monitor(*flags, *options, environment=environment, constants=patient) as server:
        yield server


def environment_of(pid: int) -> dict[str, str]:
    items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(item.decode().split("=", 1) for item in items if b"=" in item)


def what_a_tenant_is_told(server: Monitor, state: Path) -> str:
    """One whose token is made while the monitor runs."""
    made = subprocess.run(
        [*CLI, "token", "create", "acme"],
        env={**server_environment(), **server.settings(), "GPUFERRY_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        check=True,
    )
    lodger = Lodger(server, 16 * MIB, GPUFERRY_TOKEN=made.stdout.strip())
    return str(lodger.process.communicate(timeout=120)[1])


def goes_about(operator: Operator, session: control_pb2.Session, file: Path) -> Iterator[None]:
    """The session moves to the other device, into a file and back, and out of one by way of the queue."""
    ways: tuple[Callable[[], control_pb2.Migration], ...] = (
        lambda: operator.migrate(session.id, device=1 - session.device),
        lambda: operator.migrate(session.id, file=f"{file}1"),
        lambda: operator.resume(Path(f"{file}1"), device=session.device),
        lambda: operator.migrate(session.id, file=f"{file}2"),
        lambda: operator.resume(Path(f"{file}2")),
    )
    for way in ways:
        done = way()
        assert done.state == control_pb2.MIGRATION_STATE_DONE, done.reason
        if operator.sessions()[session.id].state != control_pb2.SESSION_STATE_SUSPENDED:
            yield


@pytest.mark.system
def test_a_limit_is_a_percentage_of_an_api_server_of_its_own(told: Path) -> None:
    """There too where its session moves to, or comes back from a file."""
    devices = {"GPUFERRY_SIM_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "0,1"}
    with with_mps(told, **devices) as server, contextlib.closing(Operator(server)) as operator:
        limited = Lodger(server, 16 * MIB, GPUFERRY_GPU_LIMIT="0.6")
        free = Lodger(server, 16 * MIB)
        for one in (limited, free):
            one.ready()
        servers = {one.guest_pid: one.server_pid for one in operator.sessions().values()}
        here = environment_of(servers[limited.process.pid])
        assert here[mps.PERCENTAGE] == "60"
        assert mps.PERCENTAGE not in environment_of(servers[free.process.pid])
        assert Path(here["CUDA_MPS_PIPE_DIRECTORY"], "control").exists()
        for _ in attempts():
            if all(one.pool_idle for one in operator.status().devices):
                break
        (mine,) = (one for one in operator.sessions().values() if one.guest_pid == limited.process.pid)
        for _ in goes_about(operator, mine, told / "snapshot"):
            assert environment_of(operator.sessions()[mine.id].server_pid)[mps.PERCENTAGE] == "60"
            limited.work()
        for one in (limited, free):
            one.work()
            one.finish()
        assert "a fault in one program's kernel ends all" in what_a_tenant_is_told(server, told / "state")
        operator.until_none_is_left()
        while alive(servers[limited.process.pid]):  # nobody else gets it
            pass
    assert asked(told)[-1].endswith("quit")


@pytest.mark.parametrize(
    ("changed", "simulated", "has_tenants", "why"),
    [
        ({"jail": "off"}, True, False, "the simulated device has no MPS"),
        ({"jail": "off"}, False, True, "tenants come here"),
        ({}, False, False, "which jails keep apart"),
        ({"jail": "off", "sharing": "time"}, False, False, "both would hold sessions to their limits"),
    ],
)
def test_where_it_cannot_be(changed: dict[str, str], simulated: bool, has_tenants: bool, why: str) -> None:
    options = MonitorOptions(mps=True, **changed)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=why):
        check_mps(options, simulated, has_tenants)
    check_mps(replace(options, mps=False), simulated, has_tenants)


def test_settings_that_mean_nothing_are_told() -> None:
    assert without_effect(MonitorOptions()) == []
    assert without_effect(MonitorOptions(tokens=3)) == ["--tokens means nothing with --sharing free"]
    assert without_effect(MonitorOptions(tokens=3, sharing="turns")) == []
    assert without_effect(MonitorOptions(window=5.0, sharing="turns")) == [
        "--window means nothing with --sharing turns"
    ]
