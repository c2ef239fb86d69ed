"""The shell around the session engine: the control socket, grants, scrubbing, statistics."""

from __future__ import annotations

import array
import contextlib
import os
import queue
import select
import socket
import threading
import time

from gpuferry.specs._generated import node_pb2

from ._core import Core, DeviceError
from .log import Log

PACKET = 64 << 10
HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR
LEAVE_SECONDS = 0.6  # for the engine to stop once its guest is gone; a running kernel cannot be stopped
SCRUB_SECONDS = 2.0  # to reset a context takes a real driver a while


class Control:
    """Messages to and from the monitor, one per packet."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: node_pb2.FromServer) -> None:
        try:
            self._socket.send(message.SerializeToString())
        except OSError:
            os._exit(0)  # no monitor, no reason to be

    def receive(self) -> tuple[node_pb2.ToServer | None, socket.socket | None]:
        """The next message and the socket beside it; None for the message at the end of the connection."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(PACKET, socket.CMSG_SPACE(array.array("i").itemsize))
        except ConnectionResetError:
            return None, None
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        guest = socket.socket(fileno=descriptors[0]) if descriptors else None
        return (node_pb2.ToServer.FromString(data) if data else None), guest


class Session:
    """One grant, from WELCOME to the scrub; the engine's dispatcher runs on its thread."""

    def __init__(self, core: Core, grant: node_pb2.Grant, guest: socket.socket, log: Log) -> None:
        self.id = grant.session
        self.reason = ""
        self.clean = False
        self.stats: dict[str, int] = {}  # once it is over: a scrub leaves none
        self.deadline: float | None = None  # when the process ends if the session has not
        self._core = core
        self._guest = guest
        self._log = log.bind(session=grant.session)
        core.begin(guest.fileno(), grant.memory_quota)
        try:
            guest.sendall(core.welcome(grant.welcome_proof, grant.session, grant.memory_quota))
        except OSError:
            core.end("connection lost")
        self._log.info("session started", tenant=grant.tenant, function=grant.function, program=grant.program)

    @property
    def guest(self) -> socket.socket:
        return self._guest

    def end(self, reason: str) -> None:
        self._core.end(reason)
        self.leave()

    def leave(self) -> None:
        """The guest is gone, or must go: the session has this long to end."""
        if self.deadline is None:
            self.deadline = time.monotonic() + LEAVE_SECONDS

    def close(self) -> None:
        self._guest.close()
        self._log.info("session ended", reason=self.reason, clean=self.clean)

    def serve(self) -> None:
        """From the first call to the scrub; on the dispatcher's thread."""
        self.reason = self._core.serve()
        self.stats = self._core.stats()
        self.deadline = time.monotonic() + SCRUB_SECONDS
        self.clean = self._core.scrub()


class Dispatcher:
    """The thread that serves sessions, one after the other; started ahead, so that no guest waits for it."""

    def __init__(self) -> None:
        self._over, self._tell = socket.socketpair()
        self._sessions: queue.SimpleQueue[Session] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="dispatcher", daemon=True).start()

    def fileno(self) -> int:
        """Readable when a session is over and scrubbed."""
        return self._over.fileno()

    def serve(self, session: Session) -> None:
        self._sessions.put(session)

    def over(self) -> None:
        """Takes note that the session is over."""
        self._over.recv(1)

    def _run(self) -> None:
        while True:
            self._sessions.get().serve()
            self._tell.send(b"\0")


class Server:
    """One API server: a warm context, the monitor's orders, one session at a time."""

    def __init__(self, device: int, control_fd: int) -> None:
        self._device = device
        self._control = Control(control_fd)
        self._log = Log(gpu=device, pid=os.getpid())
        self._session: Session | None = None
        self._dispatcher = Dispatcher()
        self._poller = select.poll()

    def run(self) -> int:
        """Serves until the monitor says otherwise; returns the exit status."""
        try:
            self._core = Core(self._device)
        except DeviceError as error:
            self._log.error("start failed", reason=str(error))
            self._control.send(node_pb2.FromServer(failed=node_pb2.Failed(reason=str(error))))
            return 1
        self._poller.register(self._control, select.POLLIN)
        self._poller.register(self._dispatcher, select.POLLIN)
        self._ready()
        while True:
            for fd, events in self._poller.poll(self._patience()):
                if fd == self._control.fileno():
                    if not self._obey():
                        return 0
                elif fd == self._dispatcher.fileno():
                    if not self._ended():
                        return 1
                elif self._session is not None and events & HUNG_UP:
                    self._poller.unregister(fd)
                    self._session.leave()
            if self._overdue():
                return 1
            if self._session is not None and self._session.deadline is None:
                self._core.forward_output()

    def _ready(self) -> None:
        core = self._core
        base, size = core.window
        self._log.info("ready", rss=rss())
        self._control.send(
            node_pb2.FromServer(
                ready=node_pb2.Ready(
                    pid=os.getpid(),
                    device=self._device,
                    device_uuid=core.device_uuid,
                    device_name=core.device_name,
                    device_memory=core.device_memory,
                    window_base=base,
                    window_size=size,
                    driver_version=core.driver_version,
                    simulated=core.simulated,
                )
            )
        )

    def _patience(self) -> float | None:
        """Milliseconds until the session is overdue."""
        if self._session is None or self._session.deadline is None:
            # Now and then while there is a session: kernels may have printed, and a scrub sets a deadline.
            return None if self._session is None else 500
        return max(0.0, self._session.deadline - time.monotonic()) * 1000 + 1

    def _obey(self) -> bool:
        """Does what the monitor says; False: leave."""
        message, guest = self._control.receive()
        if message is None:
            os._exit(0)
        kind = message.WhichOneof("message")
        if kind == "grant":
            self._grant(message.grant, guest)
            return True
        if guest is not None:
            guest.close()
        if kind == "revoke" and self._session is not None and message.revoke.session == self._session.id:
            self._session.end(f"revoked: {message.revoke.reason}")
        elif kind == "stats":
            self._control.send(node_pb2.FromServer(stats=self._stats()))
        elif kind == "shutdown":
            return self._shut_down(message.shutdown.grace_seconds)
        return True

    def _grant(self, grant: node_pb2.Grant, guest: socket.socket | None) -> None:
        if guest is None or self._session is not None:
            self._log.error(
                "grant refused", session=grant.session, reason="no socket" if guest is None else "busy"
            )
            os._exit(1)  # monitor and server disagree on who holds what
        self._control.send(
            node_pb2.FromServer(started=node_pb2.SessionStarted(session=grant.session))
        )  # before WELCOME: until then the monitor may still give the guest to another server
        self._session = Session(self._core, grant, guest, self._log)
        self._dispatcher.serve(self._session)
        self._poller.register(guest, select.POLLRDHUP)

    def _ended(self) -> bool:
        """Reports the end of the session; False: this process is not fit for another."""
        session = self._session
        assert session is not None
        self._dispatcher.over()
        with contextlib.suppress(KeyError):  # it hung up first
            self._poller.unregister(session.guest)
        session.close()
        self._report(session, session.reason, session.clean)
        self._session = None
        if session.clean:
            self._ready()
        return session.clean

    def _overdue(self) -> bool:
        """Ends the process under a session that will not end: a kernel runs on, or the driver hangs."""
        session = self._session
        if session is None or session.deadline is None or time.monotonic() < session.deadline:
            return False
        self._log.error("session does not end", session=session.id, reason=session.reason)
        self._report(session, session.reason or "connection lost", clean=False)
        return True

    def _report(self, session: Session, reason: str, clean: bool) -> None:
        stats = self._stats()
        ended = node_pb2.SessionEnded(session=session.id, reason=reason, clean=clean, stats=stats)
        self._control.send(node_pb2.FromServer(ended=ended))

    def _stats(self) -> node_pb2.Stats:
        if self._session is None:
            return node_pb2.Stats(rss=rss())
        values = dict(self._session.stats or self._core.stats())
        busy = values.pop("busy_nanoseconds") / 1e9
        return node_pb2.Stats(session=self._session.id, busy_seconds=busy, rss=rss(), **values)

    def _shut_down(self, grace: float) -> bool:
        if self._session is None:
            return False
        self._session.end("revoked: the server shuts down")
        self._session.deadline = time.monotonic() + max(grace, 0.0)
        return True


def rss() -> int:
    """Resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
