"""Processes that end: our children, in jails or not, and those of a monitor before us."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..service.processes import start_time

STDERR = 2
SIGNALLED = 128  # to which bubblewrap adds the signal, as shells do


class Stay(Protocol):
    """What a process takes of its jail (jail/jail.py)."""

    uid: int  # that it is there; 0: ours
    cgroup: str
    bwrap: str  # the program that makes the jail

    def arguments(self) -> list[str]:
        """Return the arguments for bubblewrap that make the jail."""

    def confinement(self) -> str:
        """What the process is told."""

    def entered(self, pid: int) -> None:
        """The process is there: limit it from outside. Raises OSError."""

    def voice(self) -> int:
        """A descriptor for what the process writes on its standard output and error, to be closed. Raises
        OSError.
        """

    def takes_too_much(self) -> bool:
        """Whether it has filled the disk with what it may write. Then that is gone."""

    def leave(self) -> None:
        """Remove what was made for a process that is gone."""


class Jail(Protocol):
    """The jails that processes are kept in (implemented by jail/jail.py)."""

    def enter(self, apart: bool) -> Stay:
        """Make room for one more process. Raises OSError if there is none."""


class Process(Protocol):
    """A process whose end can be waited for."""

    @property
    def pid(self) -> int:
        """Process id."""

    @property
    def group(self) -> int:
        """The process group in which it and its helpers are."""

    @property
    def stay(self) -> Stay | None:
        """What the process takes of its jail; None: it has no jail."""

    async def wait(self) -> int | None:
        """Wait until it is gone. Returns its status, negative for a signal; None: only its parent knows."""

    def kill(self) -> None:
        """End it with all that it started."""


@dataclass(frozen=True)
class Launch:
    """How an API server is started."""

    command: Sequence[str]  # to which its options are added
    environment: Mapping[str, str]
    ready_timeout: float  # seconds until it must say Ready
    jail: Jail | None = None
    apart: Mapping[str, str] = field(default_factory=dict)  # added where tenants come; a jail has its own
    names: Sequence[str] = ()  # of the devices, in CUDA_VISIBLE_DEVICES, where numbers will not do
    ahead: Callable[[float], Awaitable[None]] | None = None  # waits for what must be there first, or OSError

    def on(self, devices: Sequence[int]) -> tuple[str, ...]:
        """The options that say on which devices."""
        options = ("--device", ",".join(map(str, devices)))
        if not self.names:
            return options
        return (*options, "--visible", ",".join(self.names[device] for device in devices))

    async def start(self, options: Sequence[str], end: socket.socket, apart: bool) -> Process:
        """Start it with these options; `end` is its end of the control channel; `apart`: where tenants must
        not know of each other. Raises OSError.
        """
        if self.ahead:
            await self.ahead(self.ready_timeout)
        command = (*self.command, *options, "--control-fd", str(end.fileno()))
        if self.jail is None:
            environment = {**self.environment, **(self.apart if apart else {})}
            child = await _execute(command, environment, (end.fileno(),))
            return Child(child, child.pid, None)
        stay = self.jail.enter(apart)
        try:
            return await _imprison(stay, command, end)
        except BaseException:
            stay.leave()
            raise


async def _execute(
    command: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    output: int = STDERR,
) -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=descriptors,
            # A terminal's Ctrl-C is for the monitor, which ends each API server with its helpers.
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(child: asyncio.subprocess.Process) -> None:
    """With its group. Of a bubblewrap that is killed alone, a half waits for ever to be told to go on."""
    _kill_group(child.pid)
    await child.wait()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


async def _imprison(stay: Stay, command: Sequence[str], end: socket.socket) -> Child:
    """By bubblewrap, which says which process it made. Long arguments are files: nobody sees them in `ps`."""
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(_file("jail", "\0".join(stay.arguments()) + "\0"))
        inner = stack.enter_context(_file("confinement", stay.confinement()))
        voice = stay.voice()
        stack.callback(os.close, voice)
        ends = os.pipe()
        reading, writing = (stack.enter_context(os.fdopen(fd, "rb", 0)) for fd in ends)
        child = await _execute(
            (
                stay.bwrap,
                *("--args", str(outer)),
                *("--info-fd", str(writing.fileno())),
                *("--", *command, "--confine-fd", str(inner)),
            ),
            {},
            # It reads nothing, but must be able to write when we are dead, and to go on (jail/DESIGN.md).
            (end.fileno(), outer, inner, writing.fileno(), reading.fileno()),
            voice,
        )
        writing.close()
        try:
            said = await _read(reading.fileno())
        except BaseException:
            await _end(child)
            raise
    try:
        pid = int(json.loads(said)["child-pid"])
    except (ValueError, KeyError):
        pid = child.pid  # it failed, and has said why
    try:
        stay.entered(pid)
    except OSError:
        await _end(child)
        raise
    return Child(child, pid, stay)


@contextlib.contextmanager
def _file(name: str, content: str) -> Iterator[int]:
    descriptor = os.memfd_create(name)
    try:
        os.write(descriptor, content.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


async def _read(descriptor: int) -> bytes:
    """All that comes through a pipe."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    data = b""
    while True:
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        part = os.read(descriptor, 4096)
        if not part:
            return data
        data += part


class Child:
    """A process that we started."""

    def __init__(self, child: asyncio.subprocess.Process, pid: int, stay: Stay | None) -> None:
        self._child = child  # itself, or the bubblewrap around it
        self.pid = pid
        self.group = child.pid
        self.stay = stay

    async def wait(self) -> int:
        """Wait until it is gone. Returns its status, negative for a signal."""
        status = await self._child.wait()
        # Who was broken into exits with whatever status it likes: those beyond all signals are no signal's.
        signalled = self.stay is not None and SIGNALLED < status < SIGNALLED + signal.NSIG
        return SIGNALLED - status if signalled else status

    def kill(self) -> None:
        """End it with all that it started: a jail ends with its first process."""
        _kill_group(self.group)


class Adopted:
    """A process that is not our child: an earlier monitor's."""

    def __init__(self, pid: int, began: int, group: int, stay: Stay | None) -> None:
        self.pid = pid
        self.group = group
        self.stay = stay
        self._descriptor = os.pidfd_open(pid)  # ProcessLookupError, an OSError, if it is gone
        try:
            if start_time(pid) != began:
                raise ProcessLookupError(pid)
        except OSError:
            os.close(self._descriptor)
            raise
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._gone.set()

    async def wait(self) -> int | None:
        """Wait until it is gone. Returns None: only its parent could know how it ended."""
        await self._gone.wait()
        return None

    def kill(self) -> None:
        """End it with all that it started."""
        if not self._gone.is_set():
            with contextlib.suppress(ProcessLookupError):  # gone, and nobody has noticed yet
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            _kill_group(self.group)
