"""One process of a replica: started, heard, weighed, ended with all that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..service.processes import how_it_ended, is_ending
from ..service.waiting import within
from .logbook import Lines
from .wrapper import descendants

WRAPPER = Path(__file__).with_name("wrapper.py")
READ_ONCE = 64 << 10
FLOOD_BYTES = 1 << 20  # of output, after which a stream rests, so that one function keeps nobody else waiting
REST_SECONDS = 0.25
KILL_SECONDS = 10.0  # that a supervisor has to end all, before it is killed itself
PROCESSES_MOST = 512  # of a replica
LOOKS = 3
OWN = (b"RssAnon", b"RssShmem", b"VmSwap")  # of memory: what no file would bring back
EXACTLY = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")  # the same, shared out among those who have it


class Process:
    """A replica's process, and the supervisor above it (wrapper.py). `gone` is set when both have ended, with
    all that had come of them.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        environment: Mapping[str, str],
        python: str,
        folder: str,
        descriptors: Sequence[int],
        heard: Callable[[str, str], None],
    ) -> None:
        """Start it. `heard` gets stream and line of all that it writes. Raises OSError."""
        self._pid = 0
        self._killed = False
        self._status: int | None = None
        self.weighed = 0  # bytes, when it was weighed last,
        self.members = 0  # and how many processes that were
        self._told, tells = os.pipe()
        os.set_blocking(self._told, False)
        said = {**config, "parent": os.getpid(), "told": tells}
        try:
            self._popen = subprocess.Popen(
                [python or sys.executable, str(WRAPPER), json.dumps(said)],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*descriptors, tells),
                start_new_session=True,
            )
            self._watched = self._watch()
        except BaseException:
            os.close(self._told)
            raise
        finally:
            os.close(tells)
        self.gone = asyncio.Event()
        assert self._popen.stdout
        assert self._popen.stderr
        self._streams = [Stream(self._popen.stdout, "out", heard), Stream(self._popen.stderr, "err", heard)]
        asyncio.get_running_loop().add_reader(self._watched, self._ended)

    def _watch(self) -> int:
        """A descriptor that tells of its end. Raises OSError where there is none left; then it has ended."""
        try:
            return os.pidfd_open(self._popen.pid)
        except OSError:
            with self._popen:
                self._popen.kill()
            raise

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self._popen.wait()
        self._hear()
        os.close(self._told)
        for stream in self._streams:
            stream.finish()
        self.gone.set()

    def _hear(self) -> None:
        """What the supervisor has told by now: the process, and at the end its status."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._told, 64).splitlines():
                if self._pid:
                    self._status = int(line)
                else:
                    self._pid = int(line)

    @property
    def pid(self) -> int:
        """Of the process; 0 until its supervisor has told it."""
        if not self._pid and not self.gone.is_set():
            self._hear()
        return self._pid

    @property
    def ending(self) -> bool:
        """Whether it has begun to end: as the kernel has it, before its connections close, and whether or not
        its supervisor has seen it.
        """
        return bool(self.pid) and is_ending(self.pid)

    @property
    def status(self) -> str:
        """How it ended, in words."""
        code = self._popen.returncode
        if code is None:
            return "it runs"
        if self._status is not None:
            code = os.waitstatus_to_exitcode(self._status)
        return f"it {'was ' * (code < 0)}{how_it_ended(code)}"

    def kill(self) -> None:
        """End it, and all that has come of it, now."""
        if not self.gone.is_set() and not self._killed:
            self._killed = True
            self._popen.send_signal(signal.SIGTERM)
            self._popen.send_signal(signal.SIGCONT)  # if its child has stopped it
            asyncio.get_running_loop().call_later(KILL_SECONDS, self._kill_supervisor)

    def _kill_supervisor(self) -> None:
        if not self.gone.is_set():
            self._popen.kill()

    async def stop(self, grace: float) -> None:
        """Ask it to end, and see that it does."""
        if not self.gone.is_set():
            self._popen.send_signal(signal.SIGUSR1)
            with contextlib.suppress(asyncio.TimeoutError):
                await within(grace, self.gone.wait())
            self.kill()
            await self.gone.wait()

    def weigh(self, limit: int) -> int:
        """Bytes of memory of its own that it and what has come of it have, shared memory too. Above the limit
        what several of them share counts once.
        """
        family = descendants(self._popen.pid, PROCESSES_MOST + 1)
        self.members = len(family)
        self.weighed = weight(family, limit)
        return self.weighed


class Stream:
    """The standard output or error of a replica."""

    def __init__(self, pipe: IO[bytes], name: str, heard: Callable[[str, str], None]) -> None:
        self._pipe = pipe
        self._name = name
        self._heard = heard
        self._lines = Lines()
        self._read_since_rest = 0
        self._resting: asyncio.TimerHandle | None = None
        os.set_blocking(pipe.fileno(), False)
        self._loop = asyncio.get_running_loop()
        self._open()

    def _open(self) -> None:
        self._read_since_rest = 0
        self._resting = None
        self._loop.add_reader(self._pipe.fileno(), self._readable)

    def _read(self) -> bool:
        """Whether more may come."""
        try:
            data = os.read(self._pipe.fileno(), READ_ONCE)
        except BlockingIOError:
            return False
        for line in self._lines.feed(data) if data else self._lines.rest():
            self._heard(self._name, line)
        self._read_since_rest += len(data)
        return bool(data)

    def _readable(self) -> None:
        if not self._read():
            self._loop.remove_reader(self._pipe.fileno())
        elif self._read_since_rest > FLOOD_BYTES:
            self._loop.remove_reader(self._pipe.fileno())
            self._resting = self._loop.call_later(REST_SECONDS, self._open)

    def finish(self) -> None:
        """Read what its process has left, and close."""
        if self._resting:
            self._resting.cancel()
        self._loop.remove_reader(self._pipe.fileno())
        while self._read_since_rest <= FLOOD_BYTES and self._read():
            pass
        for line in self._lines.rest():
            self._heard(self._name, line)
        self._pipe.close()


def weight(family: Sequence[int], limit: int) -> int:
    """Bytes of memory of these processes' own, shared memory too. Above the limit what several share counts
    once, by the least of some looks: what one forks while it is looked at counts as its own and as its
    child's part.
    """
    weighed = sum(_sum(pid, "status", OWN) for pid in family)
    for _ in range(LOOKS):
        if weighed <= limit:
            break
        exactly = sum(_sum(pid, "smaps_rollup", EXACTLY) or _sum(pid, "status", OWN) for pid in family)
        weighed = min(weighed, exactly)
    return weighed


def _sum(pid: int, file: str, names: Sequence[bytes]) -> int:
    """Bytes of all these fields of a file in the process's folder; 0: it cannot be read."""
    try:
        with open(f"/proc/{pid}/{file}", "rb") as opened:
            fields = (line.partition(b":") for line in opened)
            return sum(int(value.split()[0]) << 10 for name, _, value in fields if name in names)
    except OSError:
        return 0
