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

from ..service.waiting import within
from .logbook import Lines

WRAPPER = Path(__file__).with_name("wrapper.py")
READ_ONCE = 64 << 10
FLOOD_BYTES = 1 << 20  # of output, after which a stream rests, so that one function keeps nobody else waiting
REST_SECONDS = 0.25
PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """A wrapper's process, the leader of a session of its own. `gone` is set when it has ended."""

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
        self._popen = subprocess.Popen(
            [python or sys.executable, str(WRAPPER), json.dumps({**config, "parent": os.getpid()})],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(descriptors),
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self.gone = asyncio.Event()
        assert self._popen.stdout
        assert self._popen.stderr
        self._streams = [Stream(self._popen.stdout, "out", heard), Stream(self._popen.stderr, "err", heard)]
        self._watched = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._ended)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        # While it is not reaped its group cannot be another's: what it has left behind ends too.
        self._signal(signal.SIGKILL)
        self._popen.wait()
        for stream in self._streams:
            stream.finish()
        self.gone.set()

    @property
    def status(self) -> str:
        """How it ended, in words."""
        code = self._popen.returncode
        if code is None:
            return "it runs"
        return (
            f"it exited with status {code}" if code >= 0 else f"it was killed by {signal.Signals(-code).name}"
        )

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End it, and what it has started, now."""
        if not self.gone.is_set():
            self._signal(signal.SIGKILL)

    async def stop(self, grace: float) -> None:
        """Ask it to end, and see that it does."""
        if not self.gone.is_set():
            self._signal(signal.SIGTERM)
            with contextlib.suppress(asyncio.TimeoutError):
                await within(grace, self.gone.wait())
            self.kill()
            await self.gone.wait()

    def weight(self) -> int:
        """Bytes of memory of its own that it and its children have."""
        return sum(_private(pid) for pid in _family(self.pid))


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


def _family(pid: int) -> list[int]:
    """The process and all that come of it, a bounded number."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError, ValueError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        if len(found) > 1000:
            break
    return found


def _private(pid: int) -> int:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE
