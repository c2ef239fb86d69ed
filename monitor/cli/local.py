"""`gpuferry run --local`: a private monitor on a Unix socket, for one command. Standard library only."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from gpuferry.guest import launch
from gpuferry.guest.endpoint import Endpoint, read_token

from .errors import CliError, Exit

STOP_SECONDS = 10.0
READY_SECONDS = 120.0
_NOT_FOR_IT = {
    "GPUFERRY_TOKEN",
    "GPUFERRY_TOKEN_FILE",
    "GPUFERRY_REGISTRY",
    "GPUFERRY_CLUSTER_KEY",
    "GPUFERRY_CLUSTER_KEY_FILE",
    "GPUFERRY_TLS_CERT",
    "GPUFERRY_TLS_KEY",
    "GPUFERRY_TLS_CA",
    "CUDA_VISIBLE_DEVICES",  # the program's: what it leaves would be chosen from once more
    "CUDA_DEVICE_ORDER",
    "NOTIFY_SOCKET",  # systemd is to hear of the program
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
}


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    # A Unix socket's path may have 107 characters, so not below a long TMPDIR if that can be helped.
    base = next(
        (
            folder
            for folder in (os.environ.get("XDG_RUNTIME_DIR"), "/tmp")
            if folder and os.access(folder, os.W_OK)
        ),
        None,
    )
    folder = tempfile.mkdtemp(prefix="gpuferry-local-", dir=base)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _progress(text: str) -> None:
    if sys.stderr and sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _monitor_command(folder: Path, descriptor: int, device: str | None) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "gpuferry.monitor.cli.main",
        "monitor",
        "--pool",
        "1",
        "--listen",
        "none",
    ]
    command += ["--socket", str(folder / "session.sock"), "--control", f"unix:{folder / 'control.sock'}"]
    command += ["--http", "none", "--sample", "0"]
    command += ["--jail", "off"]  # nobody shares it
    command += ["--orphan-grace", "0"]  # nobody will follow it
    command += ["--log-level", "error", "--config", os.devnull, "--parent-fd", str(descriptor)]
    return command + (["--device", device] if device else [])


@contextlib.contextmanager
def _monitor(folder: Path, device: str | None, gpus: int) -> Iterator[Endpoint]:
    """For as long as its user wants. If this process dies, the monitor sees its end of the socket close."""
    ours, theirs = socket.socketpair()
    environment = launch.clean_environment() | {"GPUFERRY_RUNTIME_DIR": str(folder)}
    for name in list(environment):  # it makes up a token of its own, and its settings are what we say
        if name in _NOT_FOR_IT or name.startswith("GPUFERRY_MONITOR_"):
            del environment[name]
    asked = environment.get("GPUFERRY_GPUS", "")
    wanted = gpus or (int(asked) if asked.isdecimal() else 1)
    if wanted > 1:  # of a simulated device there are as many as one asks for
        environment.setdefault("GPUFERRY_SIM_DEVICES", str(wanted))
    environment["GPUFERRY_STATE_DIR"] = str(folder / "state")
    environment["GPUFERRY_SIM_STDERR"] = "0"  # the program says what its kernels did
    with theirs:
        process = subprocess.Popen(
            _monitor_command(folder, theirs.fileno(), device),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    try:
        with ours:
            ours.settimeout(READY_SECONDS)
            _progress("gpuferry: starting a private monitor …")
            answer = ours.makefile().readline().strip()
            _progress("")
            if answer != "ready":
                reason = answer.removeprefix("failed ") or "it ended without saying why"
                raise CliError(
                    Exit.FAILED, f"the private monitor did not start: {reason}", "see `gpuferry doctor`"
                )
            yield Endpoint(f"unix:{folder / 'session.sock'}", "--local", read_token(str(folder / "token")))
    except TimeoutError:
        raise CliError(Exit.FAILED, f"the private monitor was not ready within {READY_SECONDS:g} s") from None
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _keep(program: int, options: argparse.Namespace, answer: int) -> None:
    """Run a private monitor for as long as the process `program` is there; says in `answer` how it began."""
    watch = os.pidfd_open(program)
    with open(answer, "w", encoding="utf-8") as told:
        try:
            with _private_folder() as folder, _monitor(folder, options.device, options.gpus) as found:
                json.dump(found, told)
                told.close()
                select.select([watch], [], [])
        except CliError as error:
            json.dump([error.what, error.hint], told)
        except OSError as error:
            json.dump([f"the private monitor did not start: {error}", ""], told)


def _keeper(options: argparse.Namespace) -> Endpoint:
    """Start a process that keeps a private monitor until this one ends, whatever it has become by then."""
    program = os.getpid()
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        # Not our child, for a program may wait for all of its own, nor of its group, which has its signals.
        with contextlib.suppress(BaseException):
            os.setsid()
            if os.fork() == 0:
                os.close(reader)
                _keep(program, options, writer)
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        os.waitpid(between, 0)
        said = answer.read()
    match json.loads(said or '["the private monitor ended without saying why", ""]'):
        case [what, hint]:
            raise CliError(Exit.FAILED, what, hint)
        case found:
            return Endpoint(*found)


def run_local(command: list[str], options: argparse.Namespace, settings: dict[str, str]) -> NoReturn:
    """Become the program, with a monitor of its own; `settings` are what it asks for of the session."""
    found = _keeper(options)
    theirs = launch.guest_settings(found, options.memory, options.function, options.stats, options.gpus)
    launch.execute(command, launch.guest_environment(theirs | settings))
