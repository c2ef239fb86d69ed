"""A session engine alone, in a process of its own on the simulated device."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuferry.guest import paths
from gpuferry.native.descriptors import receive as descriptors_of

from tests.apiserver.guest import Guest
from tests.helpers.warm import ENGINE, Popen

SIZE = struct.Struct("<Q")
DESCRIPTORS = 4
DEADLINE = 120.0
PAGE_BITS = 21


def send(connection: socket.socket, value: Any, descriptors: list[int] | None = None) -> None:
    data = pickle.dumps(value)
    socket.send_fds(connection, [SIZE.pack(len(data))], descriptors or [])
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    head, descriptors = descriptors_of(connection, SIZE.size, DESCRIPTORS)
    if not head:
        raise EOFError
    data = bytearray()
    while len(data) < SIZE.unpack(head)[0]:
        part = connection.recv(SIZE.unpack(head)[0] - len(data))
        if not part:
            raise EOFError
        data += part
    return pickle.loads(data), descriptors


class Engine:
    """Use as a context manager. What Core raises is raised here as RuntimeError, with its type's name."""

    def __init__(self, log: Path, device: int | tuple[int, ...] = 0, **environment: str) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(DEADLINE)
        preload = f"{os.environ.get('LD_PRELOAD', '')}:{paths.simulated_driver()}".lstrip(":")
        defaults = {"GPUFERRY_SIM_DIRTY": "1", "GPUFERRY_SIM_MEMORY": "256MiB"}
        devices = [device] if isinstance(device, int) else device
        with theirs, log.open("ab") as stderr:
            self.process = Popen(
                [*ENGINE, str(theirs.fileno()), *map(str, devices)],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"LD_PRELOAD": preload} | defaults | environment,
                stderr=stderr,
            )
        self.log = log
        self._guests: list[socket.socket] = []

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        for guest in self._guests:
            guest.close()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()

    def call(self, what: str, *arguments: Any, descriptors: list[int] | None = None) -> Any:
        """A method or property of Core, or one of `Host` below."""
        try:
            send(self._control, (what, arguments), descriptors)
            (result, error), came = receive(self._control)
        except (EOFError, ConnectionError):
            raise AssertionError(f"the engine is gone:\n{self.log.read_text()}") from None
        if error is not None:
            raise RuntimeError(error)
        return came[0] if came else result

    def session(
        self,
        quota: int = 128 << 20,
        resumable: bool = False,
        restore: bool = False,
        spoken: bytes | None = None,
        host_memory: int = 0,
    ) -> Guest:
        """Begins one; returns its guest, or whoever restores it."""
        ours, theirs = socket.socketpair()
        self._guests.append(ours)
        self.theirs = theirs  # for who moves the session
        self._guests.append(theirs)
        self.call(
            "host_serve",
            *(quota, resumable, restore, spoken, host_memory),
            descriptors=[theirs.fileno()],
        )
        if restore:  # a link, whose end must be seen
            theirs.close()
        guest = Guest(ours)
        guest.window, guest.window_size = self.call("window")
        guest.granularity = self.call("granularity")
        return guest

    def physical(self, address: int) -> int:
        """A descriptor of the memory of the mapping that begins there."""
        assert self.call("hold", DEADLINE)
        self.call("alias")
        descriptor: int = self.call("share", address)
        self.call("proceed")
        return descriptor

    def ended(self) -> tuple[str, bool]:
        """Waits for the end of the session: why it ended, and whether this process could serve another."""
        reason, clean = self.call("host_join")
        return reason, clean


class Host:
    """In the process of the engine."""

    def __init__(self, control: socket.socket, *devices: int) -> None:
        from gpuferry.apiserver import driver

        driver.stand_in()
        from gpuferry.apiserver._core import Core

        self._control = control
        self._core = Core(*devices)
        self._socket: socket.socket | None = None
        self._dispatcher: threading.Thread | None = None
        self._end = ("", False)

    def _seal(self, code: str) -> None:
        """From here on the process has no other system calls than an API server in a jail."""
        from gpuferry.apiserver.confinement import Confinement

        Confinement(filter=code).seal()

    def run(self) -> None:
        while True:
            (what, arguments), descriptors = receive(self._control)
            try:
                result, given = self._do(what, arguments, descriptors), []
            except Exception as error:
                send(self._control, (None, f"{type(error).__name__}: {error}"))
                continue
            if what == "share":
                given = [result]
            send(self._control, (result, None), given)
            for descriptor in given:
                os.close(descriptor)

    def _do(self, what: str, arguments: tuple[Any, ...], descriptors: list[int]) -> Any:
        own: dict[str, Callable[..., Any]] = {
            "host_serve": self._serve,
            "host_join": self._join,
            "host_seal": self._seal,
            "hash_kernels": self._hash_kernels,
            "read": self._read,
            "read_variable": self._read_variable,
        }
        if what == "host_serve":
            return self._serve(descriptors[0], *arguments)
        if what == "open_book":
            return self._core.open_book(descriptors[0], *arguments)
        if what == "host_deliver":
            return self._deliver(descriptors[0], *arguments)
        if what == "resume":
            return self._core.resume(descriptors[0], *arguments)
        if what in own:
            return own[what](*arguments)
        found = getattr(self._core, what)
        return found(*arguments) if callable(found) else found

    def _serve(
        self,
        descriptor: int,
        quota: int,
        resumable: bool,
        restore: bool,
        spoken: bytes | None,
        host_memory: int,
    ) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._core.begin(descriptor, quota, resumable, restore, spoken, host_memory=host_memory)
        self._dispatcher = threading.Thread(target=self._run_session, daemon=True)
        self._dispatcher.start()

    def _run_session(self) -> None:
        end = self._core.serve()
        self._end = (end.reason, self._core.scrub())

    def _join(self) -> tuple[str, bool]:
        assert self._dispatcher
        assert self._socket
        self._dispatcher.join(DEADLINE)
        assert not self._dispatcher.is_alive(), "the session does not end"
        self._socket.close()
        return self._end

    def _deliver(self, descriptor: int, number: int, pages: int, extent: int) -> None:
        """Memory of one part, all of which was exported."""
        self._core.deliver(number, True, False, 0, pages << PAGE_BITS, [(descriptor, pages, extent)])

    def _hash_kernels(self) -> bytes:
        from gpuferry.apiserver._core import HASH_KERNELS

        return HASH_KERNELS

    def _read(self, address: int, size: int) -> bytes:
        target = bytearray(size)
        self._core.read(address, target)
        return bytes(target)

    def _read_variable(self, address: int, size: int) -> bytes:
        target = bytearray(size)
        self._core.read_variable(address, target)
        return bytes(target)


def main() -> int:
    """Until nobody asks any more."""
    host = Host(socket.socket(fileno=int(sys.argv[1])), *map(int, sys.argv[2:]))
    with contextlib.suppress(EOFError):
        host.run()
    return 0


if __name__ == "__main__":
    os._exit(main())
