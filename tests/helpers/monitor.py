"""A private gpuferry monitor for tests: a process of its own, on ports and a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .certificates import certificates
from .points import daemon
from .running import TIMEOUT, Command, Outcome, guest_environment, run, server_environment
from .warm import CLI, Popen

READY_SECONDS = 120.0
# What few tests look at: they ask for it.
QUIET = ("--http", "none", "--sample", "0")
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Monitor:
    """A running monitor, reachable by TCP and by a Unix socket."""

    process: subprocess.Popen[bytes]
    folder: Path
    tcp: str
    unix: str
    control: str
    token: str
    log: Path
    authority: Path | None = None  # of its certificate, if its TCP port speaks TLS

    def settings(self, transport: str = "tcp") -> dict[str, str]:
        """What the guest library reads to find this monitor; transport is `tcp` or `unix`."""
        settings = {
            "GPUFERRY_MONITOR": {"tcp": self.tcp, "unix": self.unix}[transport],
            "GPUFERRY_TOKEN": self.token,
        }
        return settings | ({"GPUFERRY_TLS_CA": str(self.authority)} if self.authority else {})

    def run(
        self,
        command: Command,
        transport: str = "tcp",
        extra: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> Outcome:
        """A program through this monitor."""
        return run(command, guest_environment({**self.settings(transport), **(extra or {})}), timeout)

    def status(self) -> dict[str, Any]:
        """What `gpuferry status --json` says."""
        command = [*CLI, "status", "--json", "--control", self.control]
        pipe = subprocess.PIPE
        with Popen(
            command, env={**os.environ, **self.settings()}, stdout=pipe, stderr=pipe, text=True
        ) as asking:
            stdout, stderr = asking.communicate(timeout=TIMEOUT)
        if asking.returncode != 0:
            raise RuntimeError(f"gpuferry status: {stderr}")
        found: dict[str, Any] = json.loads(stdout)
        return found


@contextmanager
def monitor(
    *options: str,
    environment: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
    in_clear: bool = False,
    constants: Mapping[str, float] | None = None,
) -> Iterator[Monitor]:
    """Starts one, waits until an API server is ready, and ends it with everything it started. `python` is of
    the environment where gpuferry is installed; `constants` are set in the monitor's process (pointed.py).
    With GPUFERRY_TEST_TLS=1 in the test's own environment its TCP port speaks TLS, but not where the test
    itself speaks to it, or counts what passes (`in_clear`)."""
    if os.environ.get("GPUFERRY_TEST_TLS") == "1" and "--tls-cert" not in options and not in_clear:
        options = (*options, *certificates().flags())
    # Not below pytest's own folder: the path of a Unix socket may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="gpuferry-test-", dir="/tmp"))
    log = folder / "monitor.log"
    ours, theirs = socket.socketpair()
    runtime = folder / "run"
    with ours, theirs, log.open("wb") as output:
        cli, settings = daemon(constants or {}, [str(python), *CLI[1:]])
        command = [*cli, "monitor"]
        command += [
            "--listen",
            "127.0.0.1:0",
            "--socket",
            str(folder / "s"),
            "--control",
            f"unix:{folder / 'c'}",
        ]
        command += ["--parent-fd", str(theirs.fileno()), *QUIET, *options]
        process = Popen(
            command,
            env={
                **server_environment(),
                **(environment or {}),
                **settings,
                "GPUFERRY_RUNTIME_DIR": str(runtime),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        try:
            ours.settimeout(READY_SECONDS)
            answer = ours.makefile().readline().strip()
            if answer != "ready":
                raise RuntimeError(f"the monitor did not start: {answer or 'it ended'}\n{log.read_text()}")
            yield _published(process, runtime, log)
        finally:
            _stop(process)
            shutil.rmtree(folder, ignore_errors=True)


def _published(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> Monitor:
    lines = (runtime / "endpoint").read_text().splitlines()
    entries = dict(line.split("=", 1) for line in lines)
    return Monitor(
        process=process,
        folder=runtime.parent,
        tcp=entries["GPUFERRY_TCP"],
        unix=entries["GPUFERRY_MONITOR"],
        control=entries["GPUFERRY_CONTROL"],
        token=Path(entries["GPUFERRY_TOKEN_FILE"]).read_text().strip(),
        log=log,
        authority=Path(entries["GPUFERRY_TLS_CA"]) if "GPUFERRY_TLS_CA" in entries else None,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
