"""Runs one module of a client's tests, natively or remotely, to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.paths import GPUFERRY

from .recorder import WHOLE
from .results import read
from .table import Client

RECORDER = Path(__file__).with_name("recorder.py")
LOOK = 0.5


def launcher(mode: str, stats: Path) -> list[str]:
    """What stands before the client's own command."""
    if mode == "native":
        return [str(GPUFERRY), "sim", "--"]
    return [str(GPUFERRY), "run", "--stats", str(stats), "--"]


def run_module(
    client: Client, place: Path, module: str, record: Path, mode: str, settings: Mapping[str, str]
) -> None:
    """Until every test has an outcome: one that ends the process or hangs has failed, and what is left runs
    in another process."""
    command = launcher(mode, record.with_suffix(".stats"))
    command += [str(place / "bin" / "python"), str(RECORDER), str(record), client.kind, module]
    command += client.options
    # What has its modules by name must not be where folders are named as they are.
    folder = Path("/") if client.kind == "unittest" else client.place(place)
    caches = place.parent / "home"  # of compiled kernels: of this client alone
    environment = {**os.environ, **client.environment, **client.device, **settings, "HOME": str(caches)}
    caches.mkdir(exist_ok=True)
    while True:
        before = len(read(record))
        with record.with_suffix(".log").open("ab") as log:
            _to_the_end(command, environment, folder, log.fileno(), record, client.silence)
        known = read(record)
        if WHOLE in known:
            return
        if len(known) == before:  # it does not even begin a test
            with record.open("a", encoding="utf-8") as file:
                file.write(f'["{module}", "failed", "it does not start: see {record.stem}.log", 0]\n')
                file.write(f'["{WHOLE}", "passed", "", 0]\n')


def _to_the_end(
    command: list[str], environment: dict[str, str], folder: Path, log: int, record: Path, silence: int
) -> None:
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    size, since = -1, time.monotonic()
    try:
        while process.poll() is None:
            now = record.stat().st_size if record.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > silence:
                break
            time.sleep(LOOK)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
