"""What the kernel counts of a jail, and what becomes of one that it does not count."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.jail import cgroups
from gpuferry.monitor.jail.cgroups import Cgroups, Folder
from gpuferry.monitor.jail.command import Rules
from gpuferry.monitor.jail.figures import Figures
from gpuferry.monitor.jail.jail import NICE, OOM_SCORE, Jail

MEMORY, PROCESSES = 64 << 20, 16
MISSING = Folder(Path("/proc/none"), {})  # where no folder can be made


@pytest.fixture
def groups() -> Cgroups:
    found = cgroups.find(MEMORY, PROCESSES)
    if found is None:
        pytest.skip("no cgroup can be made here")
    return found


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as running:
        yield running.pid
        running.kill()


def jail(found: Cgroups | None, figures: Figures | None = None) -> Jail:
    rules = Rules(shutil.which("bwrap") or "", False, [], [], {}, 0, b"")
    return Jail(rules, rules, (), found, figures)


def groups_of(pid: int) -> set[str]:
    return {line.rpartition("/")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}


def test_a_group_that_a_killed_monitor_left_is_nobody_elses(groups: Cgroups, process: int) -> None:
    """In a container the next monitor may have its process id; another process may be in the group yet."""
    memory = groups._folders[0].path
    left = memory / f"{os.getpid()}-1"
    left.mkdir()
    try:
        stay = jail(groups).enter(apart=True)
        stay.entered(process)
        assert stay.cgroup == f"{os.getpid()}-2"
        assert stay.cgroup in groups_of(process)
        assert Path(f"/proc/{process}/oom_score_adj").read_text() == f"{OOM_SCORE}\n"
        os.kill(process, 9)
        os.waitpid(process, 0)
        for folder in groups._folders:
            (folder.path / stay.cgroup).rmdir()
    finally:
        left.rmdir()


def test_each_limit_is_set_though_another_cannot_be(tmp_path: Path, process: int) -> None:
    """The file of its figures is not there."""
    figures = Figures(tmp_path / "simdevice")
    stay = jail(None, figures).enter(apart=True)
    assert stay.figures
    stay.figures.unlink()
    stay.entered(process)
    assert Path(f"/proc/{process}/oom_score_adj").read_text() == f"{OOM_SCORE}\n"


def test_where_groups_were_promised_it_is_no_success_to_have_none(process: int) -> None:
    async def life() -> None:
        with pytest.raises(OSError, match="none"):
            jail(Cgroups([MISSING], False)).enter(apart=True).entered(process)

    asyncio.run(life())


def test_what_cannot_be_had_of_a_group_is_said_with_its_place(process: int) -> None:
    """`python: Invalid argument` was all that there was to read."""
    with pytest.raises(OSError, match="its control group in /proc/none: No such file"):
        Cgroups([MISSING], False).make(process)


AS_RUN = """
import os
from gpuferry.monitor.service.processes import let_children_be_ordinary
try:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
except PermissionError:
    raise SystemExit("no right to a real-time policy here")
let_children_be_ordinary()
own = os.sched_getscheduler(0)
if os.fork() == 0:
    print(own & os.SCHED_RR, os.sched_getscheduler(0) == os.SCHED_OTHER, flush=True)
else:
    os.wait()
"""


def test_what_a_real_time_monitor_starts_is_ordinary() -> None:
    """Under `chrt` no jail could be made: a group takes no real-time process."""
    done = subprocess.run([sys.executable, "-c", AS_RUN], capture_output=True, text=True, check=False)
    if "no right to a real-time policy" in done.stderr:
        pytest.skip("no right to a real-time policy here")
    assert done.stdout == f"{os.SCHED_RR} True\n", done.stderr


def test_one_that_is_gone_by_then_is_nobodys_fault(groups: Cgroups) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    async def life() -> None:
        jail(groups).enter(apart=True).entered(ended.pid)

    asyncio.run(life())


def test_doctor_only_looks(tmp_path: Path) -> None:
    for name, content in (
        ("cgroup.controllers", "cpu memory pids"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", ""),
    ):
        (tmp_path / name).write_text(content)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    assert cgroups.possible(tmp_path)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_who_does_not_see_its_own_group_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In some containers, /proc names a group that is not mounted: doctor failed there."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    monkeypatch.setattr(cgroups, "_own", lambda controller: "../elsewhere")
    assert not cgroups.possible(tmp_path)


@pytest.mark.parametrize(
    ("inside", "given", "events", "expected"),
    [
        ([os.getpid()], "", True, True),
        ([os.getpid(), os.getppid()], "", True, False),
        ([os.getpid(), os.getppid()], "cpu memory pids", True, True),
        ([os.getpid(), os.getppid()], "", False, True),
    ],
)
def test_a_group_with_others_in_it_hands_no_controller_on(
    tmp_path: Path, inside: list[int], given: str, events: bool, expected: bool
) -> None:
    """Of version 2, as a shell's in a container: doctor said that memory is counted, and no monitor could."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in inside))
    (tmp_path / "cgroup.subtree_control").write_text(given)
    if events:
        (tmp_path / "cgroup.events").write_text("populated 1\n")
    assert cgroups.possible(tmp_path) == expected


def test_the_end_of_a_monitor_takes_no_group_that_another_just_makes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, {})
    others, own, nobodys = (tmp_path / f"{pid}-1" for pid in (os.getppid(), os.getpid(), 1 << 22))
    for group in (others, own, nobodys):
        group.mkdir()
    Cgroups([folder], False).close()
    assert list(tmp_path.iterdir()) == [others]


def test_who_starts_many_threads_has_no_more_of_the_processors(groups: Cgroups) -> None:
    """Each jail counts as one program; where the kernel cannot do that, all in it stand back."""
    assert (
        groups.shares_processors == any((folder.path / "cpu.shares").exists() for folder in groups._folders)
        or (groups._folders[0].path / "cpu.weight").exists()
    )
    assert jail(groups).nice == (0 if groups.shares_processors else NICE)
    assert jail(None).nice == NICE


def test_swap_is_counted_as_memory(groups: Cgroups) -> None:
    limits = {file: limit for folder in groups._folders for file, limit in folder.limits.items()}
    swaps = {"memory.memsw.limit_in_bytes": MEMORY, "memory.swap.max": 0}
    there = {file for folder in groups._folders for file in swaps if (folder.path / file).exists()}
    assert {file: limits[file] for file in there} == {file: swaps[file] for file in there}
