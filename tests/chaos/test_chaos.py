"""Programs with known answers run while whatever can die or break does so, at random.

GPUFERRY_CHAOS_SEED repeats a run's choices (not its timing), so this belongs to `make test-all`.
`make test` does each of these deeds alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from bench import picture
from tests.chaos.cluster import Clerk
from tests.chaos.lookout import Lookout
from tests.chaos.porter import Porter
from tests.chaos.reign import Reign
from tests.chaos.score import DEEDS, Deed, score
from tests.chaos.stage import BALLAST, Lost, Part, Play, Resident, Stage, rehearse
from tests.chaos.world import World, world
from tests.helpers import programs, toolchain
from tests.helpers.paths import ROOT
from tests.monitor import harness

ACTORS, TRAVELLERS, PORTERS = 2, 2, 2
LOG_LINES = 60
# None that goes on to write to memory that it was refused.
CAST = [
    "alloc_free_pairs",
    "contexts",
    "copies_2d",
    "destroy_pending",
    "device_copies",
    "event_ordering",
    "events",
    "histogram",
    "legacy_stream",
    "library_runtime",
    "many_handles",
    "memsets",
    "reuse_across_streams",
    "shared_memory",
    "symbols",
    "tiny_launches",
    "vector_add_driver",
    "vector_add_runtime",
]


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> list[Play]:
    found = [programs.program(name) for name in CAST]
    rehearsed = [rehearse(p.name, toolchain.program(p.source, p.flags)) for p in found]
    folder = tmp_path_factory.mktemp("chaos")
    photograph = picture.photograph()
    photograph.resize((photograph.width // 4, photograph.height // 4)).save(folder / "small.ppm")
    kmeans = toolchain.program(ROOT / "bench" / "workloads" / "kmeans" / "kmeans.cu")
    return [*rehearsed, rehearse("kmeans", kmeans, folder / "small.ppm", "/dev/null")]


def chaos(all_of: World, plays: list[Play], seed: int, seconds: float, log: list[str]) -> None:
    server = all_of.server
    stage = Stage(plays, all_of.ways, seed)
    clerk = Clerk(all_of.registries, seed, stage.over)
    clerk.register(all_of.proxy.address)
    fresh = all_of.holdings(seed)
    ways = {way.name: way for way in all_of.ways}
    with (
        Resident(ways["unix"], seed, BALLAST) as local,
        Resident(ways["tcp, reconnecting"], seed, BALLAST) as remote,
    ):
        spared = {server.server_of(resident.pid) for resident in (local, remote)}
        stay = {resident.pid for resident in (local, remote)}
        porters = [Porter(server, stay, number, seed, stage.over) for number in range(PORTERS)]
        reign = Reign(server, all_of.proxy, all_of.registries, stage.parts, spared, stage.over, log)
        lookout = Lookout(server, stay, stage.over)
        jobs: list[Callable[[], object]] = [
            clerk.work,
            lookout.work,
            partial(stage.reside, local),
            partial(stage.reside, remote),
        ]
        jobs += [partial(stage.act, number) for number in range(ACTORS)]
        jobs += [partial(stage.travel, number) for number in range(TRAVELLERS)]
        jobs += [porter.work for porter in porters]
        with ThreadPoolExecutor(len(jobs)) as threads:
            running = [threads.submit(job) for job in jobs]
            try:
                reign.last(seed, seconds)
            finally:
                stage.over.set()
        for job in running:
            job.result()
        ends = sum((porter.ends for porter in porters), Counter[tuple[str, str]]())
        print(dict(stage.verdicts), clerk.acknowledged, local.rounds, remote.rounds, dict(ends), lookout.seen)
        assert {server.server_of(resident.pid) for resident in (local, remote)} == spared
        for resident in (local, remote):
            porters[0].carry_around(resident.pid)
            resident.finish()
    assert {verdict for _, verdict in stage.verdicts} >= {"right", "error"}
    assert any(end == "done" for _, end in ends)
    assert lookout.evictions, "nobody had to make room"
    all_of.check_rest(fresh)
    all_of.check_registries(clerk)
    all_of.check_ways(plays[-1])
    all_of.check_rest(fresh)
    assert server.stop() == 0
    harness.wait_until(lambda: not server.processes(), "end of all processes")


def run(folder: Path, plays: list[Play], seconds: float) -> None:
    seed = int(os.environ.get("GPUFERRY_CHAOS_SEED") or time.time_ns() % 1_000_000)
    print(f"GPUFERRY_CHAOS_SEED={seed}")
    log: list[str] = []
    with world(folder) as all_of:
        try:
            chaos(all_of, plays, seed, seconds, log)
        except BaseException:
            print(all_of.server.status())
            print(*log, sep="\n")
            for path in all_of.logs():
                lines = path.read_text().splitlines()
                (folder / f"{path.parent.name}.log").write_text("\n".join(lines))  # the whole of it
                print(f"-- {path}", *lines[-LOG_LINES:], sep="\n")
            raise


def test_the_seed_tells_what_goes_wrong() -> None:
    deeds = list(islice(score(7), 1000))
    assert deeds == list(islice(score(7), 1000))
    assert deeds != list(islice(score(8), 1000))
    assert {deed.name for deed in deeds} == DEEDS.keys()
    assert all(callable(getattr(Reign, name)) for name in DEEDS)


@pytest.mark.system
@pytest.mark.parametrize("first", [0, 1])
def test_each_deed_alone(tmp_path: Path, first: int) -> None:
    """Whoever it does not concern goes on, and all is as before. Every other one."""
    program = programs.program("vector_add_driver")
    play = rehearse(program.name, toolchain.program(program.source, program.flags))
    log: list[str] = []
    with world(tmp_path) as all_of:
        server, ways = all_of.server, {way.name: way for way in all_of.ways}
        clerk = Clerk(all_of.registries, 0, threading.Event())
        clerk.register(all_of.proxy.address)
        fresh = all_of.holdings(0)
        with Resident(ways["tcp, reconnecting"], 1) as stays:
            spared = {server.server_of(stays.pid)}
            for name in list(DEEDS)[first::2]:
                with Resident(ways["unix"], 2) as other:
                    parts = [Part(play, other.process)]
                    reign = Reign(
                        server, all_of.proxy, all_of.registries, parts, spared, threading.Event(), log
                    )
                    reign.alone(Deed(name, 0.0, 0.0, 0.0))
                    stays.work()
                    if name == "kill_a_guest":
                        assert other.process.wait(harness.DEADLINE) == -signal.SIGKILL
                    elif name == "kill_an_api_server":
                        with contextlib.suppress(Lost):  # unless it was another one's
                            other.work()
                    else:
                        other.finish()
                harness.wait_until(server.status, "a monitor")
            stays.finish()
        all_of.check_registries(clerk)
        all_of.check_ways(play)
        all_of.check_rest(fresh)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_no_answer_is_ever_wrong(tmp_path: Path, plays: list[Play]) -> None:
    run(tmp_path, plays, 120.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_answer_is_ever_wrong_for_long(tmp_path: Path, plays: list[Play]) -> None:
    run(tmp_path, plays, 1200.0)
