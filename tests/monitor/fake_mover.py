"""A fake API server whose sessions can move, and the keeper of their guests (without --device).

What it does is up to the session's function name:

    (anything)    moves at once
    gated         waits, once under way, until the file `go` is in the runtime folder
    stuck         will not be moved: "a kernel runs on"
    silent        is taken over by nobody: the destination never says so, and ends when it is told to
    lost          the destination dies when it should take over
    pretends      has its destination give up, and once the file `go` is there says that it has moved
    earlier       its keeper is as in gpuferry 0.1: comes to the next monitor, says not how the file begins

The destination, if the file `refuse` is there, ends instead of taking over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import threading
import time
from pathlib import Path

from gpuferry.native.descriptors import receive as descriptors_of
from gpuferry.specs._generated import migration_pb2, node_pb2

from tests.monitor.fake_apiserver import FakeServer, welcome
from tests.monitor.fake_guest import read_exactly, read_frame

TAKE_OVER, TAKEN = b"T", b"O"
PHASE = migration_pb2.Phase


def runtime(name: str) -> Path:
    return Path(os.environ["GPUFERRY_RUNTIME_DIR"], name)


class FakeMover(FakeServer):
    """Echoes, until the session is elsewhere."""

    def __init__(self, device: int, control: socket.socket) -> None:
        super().__init__([device], control)
        self.wake, self.woken = socket.socketpair()
        self.idle = threading.Event()
        self.reason = ""  # why the session ends
        self.order: migration_pb2.Migrate | None = None
        self.cancelled = ""

    def add_to(self, returned: node_pb2.Returned) -> None:
        if self.order:
            returned.migrating.CopyFrom(self.order)

    def serve(self, grant: node_pb2.Grant, guest: socket.socket) -> None:
        self.grant, self.guest, self.reason, self.cancelled = grant, guest, "", ""
        self.quota, self.session = grant.memory_quota, grant.session
        self.granted = time.monotonic() - grant.age_seconds
        self.idle.clear()
        self.tell(started=node_pb2.SessionStarted(session=grant.session))
        if grant.restore:
            if not self.restore(grant, guest):
                return
        else:
            guest.sendall(os.getpid().to_bytes(4, "little"))
        assert self.guest
        self.echo(self.guest)

    def restore(self, grant: node_pb2.Grant, link: socket.socket) -> bool:
        if not grant.welcomed:
            with contextlib.suppress(OSError):
                link.sendall(welcome())
        try:
            word, guest = receive(link)
        except OSError:
            word = b""
        if word != TAKE_OVER or runtime("refuse").exists():
            link.close()
            self.over("connection lost")
            return False
        if grant.function == "lost":
            os._exit(4)
        link.sendall(TAKEN)
        grant.restore = False
        if grant.function != "silent":
            self.tell(taken_over=migration_pb2.TakenOver(session=grant.session))
        if guest:
            link.close()
            self.guest = guest[0]
        return True

    def echo(self, guest: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([guest, self.woken], [], [])
            if self.woken in ready:
                self.woken.recv(1)
                if not self.reason:
                    self.idle.set()  # the session is elsewhere
                    return
                break
            try:
                data = guest.recv(65536)
                if not data:
                    self.reason = "closed"
                    break
                guest.sendall(data)
            except OSError:
                self.reason = "connection lost"
                break
        guest.close()
        self.over(self.reason)

    def over(self, reason: str) -> None:
        ended = node_pb2.SessionEnded(session=self.session, reason=reason, clean=True, stats=self.stats())
        self.tell(ended=ended)
        self.cancelled = self.cancelled or "its program ended"  # the monitor knows it first
        self.ready()

    def obey(self, message: node_pb2.ToServer, descriptors: list[int]) -> None:
        kind = message.WhichOneof("message")
        if message.migrate.HasField("file"):
            with open(descriptors.pop(), "wb") as file:
                file.write(message.migrate.file.head)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if kind == "migrate":
            self.order = message.migrate
            threading.Thread(target=self.move, args=(message.migrate, sockets), daemon=True).start()
        elif kind == "cancel":
            self.cancelled = message.cancel.reason
        elif kind == "next_launch" and self.grant and self.grant.function.startswith("busy"):
            self.tell(launched=node_pb2.Launched(session=message.next_launch.session))

    def move(self, order: migration_pb2.Migrate, sockets: list[socket.socket]) -> None:
        moved = migration_pb2.Moved(session=order.session)
        try:
            self.go(order, sockets)
            moved.moved = True
            moved.report.MergeFrom(
                migration_pb2.Report(
                    seconds=0.5, pause_seconds=0.02, copied_bytes=4 << 20, strategy=order.strategy
                )
            )
        except Lost as error:
            moved.lost, moved.reason = True, str(error)
        except (GivenUp, OSError) as error:
            moved.reason = str(error)
        for each in sockets:
            each.close()
        self.order = None
        self.tell(moved=moved)
        if moved.moved or moved.lost:
            self.over("moved")

    def go(self, order: migration_pb2.Migrate, sockets: list[socket.socket]) -> None:
        assert self.grant
        assert self.guest
        function, link = self.grant.function, sockets[0]
        if order.HasField("file"):
            with sockets.pop() as desk:
                desk.send(b"publish")
                assert desk.recv(100) == b"done"
        if order.HasField("local"):
            read_frame(link)  # WELCOME
        self.tell(moving=moving(order.session, 1))
        if function == "stuck":
            raise GivenUp("a kernel runs on")
        if function == "pretends":
            link.shutdown(socket.SHUT_RDWR)
            while not runtime("go").exists():
                time.sleep(0.01)
            self.wake.send(b"\0")
            assert self.idle.wait(60)
            self.guest.close()
            return
        while function == "gated" and not runtime("go").exists():
            if self.cancelled:
                raise GivenUp(self.cancelled)
            if select.select([link], [], [], 0.01)[0]:
                raise GivenUp("the other side went away")
        if self.cancelled:
            raise GivenUp(self.cancelled)
        self.wake.send(b"\0")
        assert self.idle.wait(60)
        guest = self.guest.fileno()
        descriptors = [guest] if len(sockets) == 1 else [guest, link.fileno()]
        socket.send_fds(sockets[-1], [TAKE_OVER], descriptors)
        try:
            answer = sockets[-1].recv(1)
        except OSError:
            answer = b""
        self.guest.close()
        if answer != TAKEN:
            raise Lost("nobody says that he has the session")


class GivenUp(Exception):
    """The session stays."""


class Lost(Exception):
    """It does not, and nobody has it."""


def moving(session: int, done: int) -> migration_pb2.Moving:
    return migration_pb2.Moving(
        session=session, phase=PHASE.PHASE_PRECOPY, bytes_done=done << 20, bytes_total=4 << 20
    )


def receive(link: socket.socket) -> tuple[bytes, list[socket.socket]]:
    data, descriptors = descriptors_of(link, 1, 2)
    return data, [socket.socket(fileno=descriptor) for descriptor in descriptors]


class FakeKeeper(FakeMover):
    """Has the guest's socket, and no device."""

    def __init__(self, control: socket.socket) -> None:
        super().__init__(-1, control)
        self.keep: node_pb2.Keep | None = None

    def description(self) -> node_pb2.Ready:
        return node_pb2.Ready(pid=os.getpid(), keeper=True)

    def add_to(self, returned: node_pb2.Returned) -> None:
        if self.keep:
            returned.migrating.session = self.keep.grant.session
            if self.keep.HasField("file"):
                returned.migrating.file.CopyFrom(self.keep.file)
                if self.keep.grant.function == "earlier":
                    returned.migrating.file.ClearField("head")
            else:
                returned.migrating.remote.CopyFrom(self.keep.remote)

    def come_back(self, door: socket.socket, returned: node_pb2.Returned) -> socket.socket:
        if not self.keep or self.keep.grant.function != "earlier":
            return super().come_back(door, returned)
        returned.secret = bytes.fromhex(json.loads(runtime("ledger").read_text())["secret"])
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with contextlib.suppress(OSError):
                connection.connect(str(runtime("node.sock")))
                return connection
            connection.close()
            time.sleep(0.02)

    def obey(self, message: node_pb2.ToServer, descriptors: list[int]) -> None:
        kind = message.WhichOneof("message")
        if kind == "play":
            os.close(descriptors.pop())
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if kind == "keep":
            self.keep, self.grant = message.keep, message.keep.grant
            self.granted = time.monotonic() - message.keep.session_seconds
            threading.Thread(target=self.wait, args=(sockets[0],), daemon=True).start()
        elif kind == "play":
            threading.Thread(target=self.play, args=(message.play, sockets[0]), daemon=True).start()
        elif kind == "revoke":
            self.end(f"revoked: {message.revoke.reason}")

    def wait(self, pair: socket.socket) -> None:
        assert self.keep
        word, sockets = receive(pair)
        if word != TAKE_OVER:
            os._exit(0)
        self.guest = sockets[0]
        if len(sockets) == 2 and self.keep.HasField("remote"):
            sockets[1].sendall(TAKE_OVER)
            assert read_exactly(sockets[1], 1) == TAKEN
        pair.sendall(TAKEN)
        self.keep.grant.restore = False
        self.tell(taken_over=migration_pb2.TakenOver(session=self.keep.grant.session))
        if self.keep.HasField("remote"):
            self.relay(sockets[1])
        else:
            self.idle.set()
            poller = select.poll()
            poller.register(self.guest, select.POLLRDHUP)
            poller.poll()
            if not self.order:
                self.end("closed")

    def relay(self, link: socket.socket) -> None:
        assert self.guest
        pairs = {self.guest: link, link: self.guest}
        while True:
            for one in select.select(list(pairs), [], [])[0]:
                data = one.recv(65536)
                if not data:
                    self.end("closed")
                pairs[one].sendall(data)

    def play(self, play: node_pb2.Play, link: socket.socket) -> None:
        assert self.guest
        moved = migration_pb2.Moved(session=play.session)
        self.order = migration_pb2.Migrate()
        try:
            if play.HasField("local"):
                read_frame(link)
            self.tell(moving=moving(play.session, 2))
            socket.send_fds(link, [TAKE_OVER], [self.guest.fileno()] if play.HasField("local") else [])
            moved.moved = link.recv(1) == TAKEN
        except (OSError, EOFError):
            pass
        self.order = None
        if not moved.moved:
            moved.reason = "the destination did not want it"
            self.tell(moved=moved)
            return
        self.tell(moved=moved)
        if play.HasField("remote"):
            self.relay(link)
        os._exit(0)

    def end(self, reason: str) -> None:
        assert self.keep
        self.tell(ended=node_pb2.SessionEnded(session=self.keep.grant.session, reason=reason, clean=True))
        os._exit(0)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--device", type=int)
    options.add_argument("--control-fd", type=int, required=True)
    chosen = options.parse_args()
    control = socket.socket(fileno=chosen.control_fd)
    control.set_inheritable(False)
    server = FakeKeeper(control) if chosen.device is None else FakeMover(chosen.device, control)
    server.ready()
    server.run()


if __name__ == "__main__":
    main()
