"""A TCP proxy that makes trouble: cuts, stalls, and delivers in crumbs."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

from gpuferry.guest.endpoint import split_address


class Proxy:
    """Stands before a monitor. Use as a context manager."""

    def __init__(self, target: str, crumbs: int = 0, port: int = 0) -> None:
        parts = split_address(target)
        assert not isinstance(parts, str)
        self._target = parts
        self._crumbs = crumbs  # at most so many bytes at a time; 0: as they come
        self._listening = socket.create_server(("127.0.0.1", port))
        self._open: list[tuple[socket.socket, socket.socket]] = []
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
        for pair in self._open:
            for connection in pair:
                connection.close()

    def cut(self, chance: random.Random | None = None) -> None:
        """End one connection, by chance, or all of them, on both sides."""
        pairs = list(self._open)
        for pair in [chance.choice(pairs)] if chance and pairs else pairs:
            for connection in pair:
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
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self.connections += 1
            thread = threading.Thread(target=self._connect, args=(near, far), daemon=True)
            self._threads = [thread for thread in self._threads if thread.is_alive()] + [thread]
            thread.start()

    def _connect(self, near: socket.socket, far: socket.socket) -> None:
        self._open.append((near, far))
        for sink in (near, far):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        self._open.remove((near, far))
        near.close()
        far.close()

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
