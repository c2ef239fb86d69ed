"""NVIDIA's Multi-Process Service: its control daemon is started, watched, and told to quit.

A CUDA process that finds no daemon works without MPS and does not say so. So API servers are started only
while the daemon answers (`ready`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from ..devices.choice import server_environment
from ..policy.portion import FULL
from ..service.processes import start_time
from ..service.restarts import Restarts
from ..service.waiting import within
from ..settings.errors import ConfigError
from .process import Adopted

PROGRAM = "nvidia-cuda-mps-control"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SOCKET_PATH_MOST = 80  # bytes of the pipes' folder: the daemon makes Unix sockets in it
READY_SECONDS = 10.0  # for the daemon to answer once it was started
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two questions whether it is well
QUIT_SECONDS = 10.0
# Before another is started in place of the first that ended, and between looks at a new one.
PAUSE_SECONDS = 0.1

log = structlog.get_logger()


class MpsError(OSError):
    """The daemon does not run, or does not answer."""


def percentage(limit: int) -> int:
    """The percentage of a GPU's threads for a limit in thousandths of its time, rounded up; 0: all."""
    return 0 if limit >= FULL else max(1, -(-limit // 10))


def find() -> str:
    """The path of the daemon's program. Raises ConfigError."""
    if path := shutil.which(PROGRAM):
        return path
    raise ConfigError(
        f"--mps needs {PROGRAM}, which is not in PATH",
        "it comes with NVIDIA's driver (Debian: nvidia-cuda-mps, Ubuntu: nvidia-compute-utils)",
    )


class Mps:
    """The daemon of a monitor, and of the next one where that is killed: API servers that live on need it."""

    def __init__(self, folder: Path, program: str) -> None:
        self._program = program
        self._pipes, self._logs = folder / "pipe", folder / "log"
        if len(os.fsencode(self._pipes)) > SOCKET_PATH_MOST:
            raise ConfigError(
                f"{self._pipes}: too long a name for sockets of MPS", "shorten GPUFERRY_RUNTIME_DIR"
            )
        self._daemon: Adopted | None = None
        self._up = asyncio.Event()
        self.starts = 0  # daemons that were started

    @property
    def pid(self) -> int:
        """Process id of the daemon; 0: it does not answer."""
        return self._daemon.pid if self._daemon and self._up.is_set() else 0

    @property
    def environment(self) -> Mapping[str, str]:
        """What its clients need in their environment."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self._pipes), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}

    async def ready(self, limit: float) -> None:
        """Wait until the daemon answers. Raises MpsError after so many seconds."""
        try:
            await within(limit, self._up.wait())
        except asyncio.TimeoutError:
            raise MpsError(None, f"{PROGRAM} does not answer") from None

    async def run(self) -> None:
        """Keep a daemon, that of an earlier monitor if it answers, until cancelled."""
        restarts = Restarts(PAUSE_SECONDS)
        while True:
            restarts.begin()
            try:
                await self._keep_one()
                reason = "it ended"
            except (OSError, asyncio.TimeoutError) as error:
                reason = str(error) or "it does not answer"
            self._up.clear()
            self._kill()
            log.error("MPS's control daemon is gone; another is started", reason=reason, log=str(self._logs))
            await restarts.pause()

    async def _keep_one(self) -> None:
        daemon = self._daemon = await self._found() or await self._start()
        self._up.set()
        log.info("MPS's control daemon answers", daemon=daemon.pid)
        over = asyncio.ensure_future(daemon.wait())
        try:
            while True:
                done, _ = await asyncio.wait({over}, timeout=LOOK_SECONDS)
                if done:
                    return
                await self._ask("get_server_list")
        finally:
            over.cancel()

    async def _found(self) -> Adopted | None:
        """The daemon that an earlier monitor left, if it answers."""
        try:
            pid = int((self._pipes / f"{PROGRAM}.pid").read_text())
            if PROGRAM.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return None
            daemon = Adopted(pid, start_time(pid), pid, None)
        except (OSError, ValueError):
            return None
        try:
            await self._ask("get_server_list")
        except OSError:
            daemon.kill()
            return None
        return daemon

    async def _start(self) -> Adopted:
        shutil.rmtree(self._pipes, ignore_errors=True)
        for folder in (self._pipes, self._logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.starts += 1
        # In the foreground, so that it is our child; in a session of its own, so that it outlives us where we
        # are killed. asyncio would not let go of it.
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
        command, environment = (self._program, "-f"), self._own_environment()
        pid = os.posix_spawn(self._program, command, environment, file_actions=quiet, setsid=True)
        daemon = Adopted(pid, start_time(pid), pid, None)
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                await self._ask("get_server_list")
                return daemon
            except OSError:
                if _is_over(pid) or time.monotonic() > deadline:
                    daemon.kill()
                    raise MpsError(None, f"{self._program} -f does not come up") from None
            await asyncio.sleep(PAUSE_SECONDS)

    def _own_environment(self) -> dict[str, str]:
        environment = {**server_environment(False), **self.environment}
        # The daemon would number those devices anew, and clients that say the same would find none.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        return environment

    async def _ask(self, command: str, limit: float = ANSWER_SECONDS) -> str:
        """What the daemon answers to a command. Raises MpsError."""
        child = await asyncio.create_subprocess_exec(
            self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._own_environment(),
            start_new_session=True,
        )
        try:
            output, _ = await within(limit, child.communicate(f"{command}\n".encode()))
        except asyncio.TimeoutError:
            raise MpsError(None, f"{PROGRAM} does not answer within {limit:g} s") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise MpsError(None, output.decode(errors="replace").strip() or "it cannot be reached")
        return output.decode(errors="replace")

    async def stop(self) -> None:
        """Let the daemon quit: no client of it is left. If it does not, it is killed."""
        self._up.clear()
        daemon = self._daemon
        if daemon is None:
            return
        with contextlib.suppress(OSError):
            await self._ask("quit")
        with contextlib.suppress(asyncio.TimeoutError):
            await within(QUIT_SECONDS, daemon.wait())
        self._kill()

    def _kill(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()
            _is_over(self._daemon.pid)
            self._daemon = None


def _is_over(pid: int) -> bool:
    """Whether a child of ours has ended; then nothing is left of it."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:  # not ours, but of an earlier monitor
        return False
