"""Figures of the devices: averages, and a sampler that fails, hangs or dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from gpuferry.guest import paths
from gpuferry.monitor.devices import gpus, sampler
from gpuferry.monitor.devices.gpus import GpuStats, text_of_uuid

UUID = bytes(range(16))


def sample(**changes: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "lost": False,
        "uuid": text_of_uuid(UUID),
        "name": "A100",
        "pci": "00000000:01:00.0",
        "memory_total": 100,
        "memory_used": 10,
        "utilization": 0.0,
        "temperature": None,
        "power": 61.5,
        "processes": [{"pid": 7, "memory": 10, "name": "python"}],
    } | changes


def stats(*samples: dict[str, Any]) -> GpuStats:
    made = GpuStats(0.2, {}, None)
    for one in samples:
        made.take({"gpus": [one]})
    return made


def test_uuid_as_nvml_writes_it() -> None:
    assert text_of_uuid(UUID) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_nothing_is_known_before_the_first_sample() -> None:
    assert GpuStats(0.2, {}, None).get(UUID) is None
    assert GpuStats(0.0, {}, None).problem == "switched off"


def test_the_average_is_of_the_last_five() -> None:
    made = stats(*(sample(utilization=part) for part in (1.0, 1.0, 0.0, 0.5, 0.5, 0.5, 0.0)))
    gpu = made.get(UUID)
    assert gpu
    assert gpu.utilization == pytest.approx(0.3)
    assert (gpu.memory_used, gpu.power, gpu.temperature) == (10, 61.5, None)


def test_a_lost_device_keeps_its_name_and_loses_its_figures() -> None:
    made = stats(sample(utilization=1.0))
    made.take({"gpus": [{"index": 0, "lost": True, "error": "GPU is lost"}]})
    gpu = made.get(UUID)
    assert gpu
    assert gpu.lost
    assert (gpu.memory_used, gpu.utilization, gpu.processes) == (None, None, [])
    made.take({"gpus": [sample(utilization=0.5)]})
    assert not gpu.lost
    assert gpu.utilization == 0.5


def test_another_device_is_not_known() -> None:
    assert stats(sample()).get(bytes(16)) is None


def fake_sampler(folder: Path, body: str) -> dict[str, str]:
    """An environment in which `python -m gpuferry.monitor.devices.sampler` runs this instead."""
    (folder / "sitecustomize.py").write_text(f"import json, os, sys, time\n{body}\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def watch(
    environment: dict[str, str], condition: Callable[[GpuStats], Any], seconds: float = 120.0
) -> GpuStats:
    made = GpuStats(0.05, environment, None)

    async def wait(task: asyncio.Task[None]) -> None:
        while not condition(made):
            assert not task.done(), task.result()
            await asyncio.sleep(0.01)

    async def until() -> None:
        task = asyncio.ensure_future(made.run())
        try:
            await asyncio.wait_for(wait(task), seconds)
        except asyncio.TimeoutError:
            raise AssertionError(f"not within {seconds:g} s; the problem: {made.problem!r}") from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(until())
    return made


GOOD = f"print(json.dumps({{'gpus': [{sample()!r}]}}), flush=True)"


def test_it_says_why_there_is_nothing(tmp_path: Path) -> None:
    environment = fake_sampler(
        tmp_path, "print(json.dumps({'problem': 'Driver Not Loaded'}), flush=True); os._exit(1)"
    )
    made = watch(environment, lambda made: made.problem == "Driver Not Loaded")
    assert made.get(UUID) is None


def test_a_gpu_without_memory_of_its_own_has_its_other_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has the host's, NVML does not say how much there is: then nothing else was said either."""
    answers = {"UtilizationRates": SimpleNamespace(gpu=50), "PowerUsage": 7000, "Temperature": 40}

    def has_none(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    links = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth")
    for name in ("MemoryInfo", "ComputeRunningProcesses", "ClockInfo", *links):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", has_none)
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", lambda *_, answer=answer: answer)
    one = sampler.Gpu(0)
    one._handle = object()
    figures = one.sample()
    assert (figures["utilization"], figures["power"], figures["temperature"]) == (0.5, 7.0, 40)
    assert figures["memory_total"] is figures["memory_used"] is None


def test_a_sampler_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "BACKOFF_FIRST", 0.01)
    count = tmp_path / "count"
    body = f"open({str(count)!r}, 'a').write('x'); {GOOD}; os._exit(9)"
    made = watch(fake_sampler(tmp_path, body), lambda made: count.exists() and count.stat().st_size >= 3)
    # -9 if it was too slow to die of itself
    assert made.problem in ("", *(f"the sampler ended with status {status}" for status in (9, -9)))


def test_one_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "SILENCE_LEAST", 1.0)
    pid = tmp_path / "pid"
    body = f"open({str(pid)!r}, 'w').write(str(os.getpid())); {GOOD}; time.sleep(3600)"

    def killed(made: GpuStats) -> bool:
        """One that was killed before it had begun is followed by another; each takes its time to die."""
        began = pid.read_text() if pid.exists() else ""
        return "has not answered" in made.problem and began != "" and not Path("/proc", began).exists()

    assert watch(fake_sampler(tmp_path, body), killed).get(UUID) is None


def test_no_sampler_survives(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"open({str(pid)!r}, 'w').write(str(os.getpid())); {GOOD}; time.sleep(3600)"
    made = watch(fake_sampler(tmp_path, body), lambda made: made.get(UUID))
    assert made.problem == ""
    assert not Path("/proc", pid.read_text()).exists()


def test_the_sampler_ends_when_nobody_reads() -> None:
    command = [sys.executable, "-m", "gpuferry.monitor.devices.sampler", "--interval", "0.01"]
    command += ["--library", paths.simulated_nvml()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 0
