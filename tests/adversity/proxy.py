"""A TCP proxy that makes trouble: cuts, stalls, and delivers in crumbs."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

from gpuferry.guest.endpoint import split_address


class Proxy:
    """Stands before a monitor. Use as a context manager."""

    def __init__(self, target: str, crumbs: int = 0) -> None:
        parts = split_address(target)
        assert not isinstance(parts, str)
        self._target = parts
        self._crumbs = crumbs  # at most so many bytes at a time; 0: as they come
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._flowing.set()
        self.cut()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def cut(self) -> None:
        """End all connections, both sides."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Deliver nothing until `resume`."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self.connections += 1
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._pump, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        chance = random.Random(self._crumbs)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while data:
                    self._flowing.wait()
                    size = chance.randint(1, self._crumbs) if self._crumbs else len(data)
                    sink.sendall(data[:size])
                    data = data[size:]
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
