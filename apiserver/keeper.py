"""`python -m gpuferry.apiserver.keeper`: holds the guest of a session that is suspended or moved away.

It has no device, makes no CUDA call, and speaks the API server's control protocol.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback

from gpuferry.migration import follow, handover
from gpuferry.migration.errors import Cancelled, LinkBroken, Lost, MigrationError, Refused
from gpuferry.migration.file import Reader, Snapshot
from gpuferry.migration.frames import OPERATIONS
from gpuferry.migration.link import Link
from gpuferry.migration.place import ExistingFile
from gpuferry.migration.plain import PlainReader
from gpuferry.migration.play import Player
from gpuferry.migration.targets import take_over
from gpuferry.native.tls.stream import Connection, state_of, with_state
from gpuferry.specs._generated import frames, handover_pb2, migration_pb2, node_pb2, wire
from gpuferry.specs._generated.frames import Frame, Reason

from . import orders
from .confinement import Confinement
from .control import POLL_MOST, PR_SET_PDEATHSIG, Control
from .end import CLOSED, LOST, MOVED, End, revoked
from .log import Log
from .orders import Unsound
from .process import rss
from .progress import Progress
from .relay import RECEIVE, Frames, Malformed, Relay

HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR
DEVICE_UNAVAILABLE = 46  # CUresult
ASK_SECONDS = 40.0  # for which the monitor asks, and a little more
CLOSE = OPERATIONS["sessionClose"]
UNWAITING = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
Custody = handover_pb2.Custody


class Keeper:
    """Holds the guest of one session, from the hand-over to the session's end."""

    def __init__(self, control_fd: int) -> None:
        self._control = Control(control_fd, orders.KEEPERS)
        self._log = Log(keeper=True, pid=os.getpid())
        self._keep: node_pb2.Keep | None = None
        self._since = time.monotonic()  # from here the session's age counts,
        self._suspended_at: float | None = None  # and here it stands still
        self._pair: socket.socket | None = None
        self._inquiry: socket.socket | None = None  # where the monitor says whether a session has arrived
        self._handover: handover_pb2.Handover | None = None
        self._guest: Connection | None = None
        self._relay: Relay | None = None
        self._playing: Playing | None = None
        self._over: float | None = None  # when, if the session is over
        self._end_after: End | None = None
        self._away_until: float | None = None  # the guest lost its connection, and may come back until then
        self._came_back = False  # and has a part of its stream again, perhaps not up to the end of a frame
        self._comeback: tuple[node_pb2.Resume, Connection] | None = (
            None  # until it is known who has the session
        )

    def run(self) -> int:
        """Work until the session is over or the monitor says otherwise. Returns the exit status."""
        self._control.send(node_pb2.FromServer(ready=self._description()))
        while self._over is None or (self._control.lost_at is not None and not self._control.forsaken()):
            if self._control.lost_at is not None and self._keep is None:
                return 0  # its monitor is gone without an order, and the next one has none for it
            found = dict(self._poll())
            if self._control.lost_at is not None and self._keep is not None:
                self._find_home(self._keep)
            elif found.get(self._control.fileno()) and not self._obey():
                return 0
            if self._pair is not None and found.get(self._pair.fileno()):
                self._receive(self._pair)
            if self._playing is not None:
                self._listen(self._playing)
            if self._relay is not None:
                self._pass_on(self._relay)
            elif self._guest is not None and found.get(self._guest.fileno(), 0) & HUNG_UP:
                self._hung_up(self._guest)
            if self._away_until is not None and time.monotonic() > self._away_until:
                self._away_until = None
                self._end(LOST)
        return 0

    def _poll(self) -> list[tuple[int, int]]:
        poller = select.poll()
        waits = []
        if self._away_until is not None:
            waits.append(max(0.0, self._away_until - time.monotonic()) * 1000 + 1)
        if self._control.lost_at is None:
            poller.register(self._control, select.POLLIN)
        else:
            poller.register(self._control.door, select.POLLIN)
            if self._over is not None:
                waits.append(self._control.patience * 1000 + 1)
        if self._pair is not None:
            poller.register(self._pair, select.POLLIN)
        if self._playing is not None:
            poller.register(self._playing.progress, select.POLLIN)
        if self._relay is not None:
            for fd, events in self._relay.events().items():
                poller.register(fd, events)
        elif self._guest is not None and not self._end_after and self._away_until is None:
            poller.register(self._guest, select.POLLRDHUP)
        return poller.poll(min([*waits, POLL_MOST]) if waits else None)

    def _obey(self) -> bool:
        try:
            message, descriptors = self._control.receive()
        except Unsound as error:
            self._log.error("ordered what cannot be", reason=str(error))
            os._exit(1)
        if message is None:
            return True
        kind = message.WhichOneof("message")
        if kind == "play":
            self._play(message.play, descriptors, message.tls)
            return True
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if kind == "keep" and sockets and self._keep is None:
            self._keep, self._pair = message.keep, sockets.pop(0)
            self._inquiry = sockets.pop(0) if sockets else None
            self._since = time.monotonic() - self._keep.session_seconds
        elif kind == "resume" and len(sockets) == 1:
            self._resume(message.resume, with_state(sockets.pop(), message.tls))
        elif kind == "revoke" and self._is(message.revoke.session):
            self._revoke(revoked(message.revoke.reason))
        elif kind == "cancel" and self._is(message.cancel.session) and self._playing is not None:
            self._playing.progress.cancel(message.cancel.reason)
        elif kind == "stats":
            away = self._away_until is not None
            stats = node_pb2.Stats(session=self._session(), rss=rss(), disconnected=away)
            self._control.send(node_pb2.FromServer(stats=stats))
        elif kind == "home":
            self._control.settle(message.home, sockets.pop() if sockets else None)
        elif kind == "shutdown":
            if self._guest is None:
                return False
            self._revoke(revoked("the server shuts down"))
        for each in sockets:
            each.close()
        return True

    def _session(self) -> int:
        return self._keep.grant.session if self._keep is not None else 0

    def _is(self, session: int) -> bool:
        return self._guest is not None and session == self._session()

    def _receive(self, pair: socket.socket) -> None:
        """The guest's socket from the source, and what to do with it."""
        assert self._keep is not None
        given = handover.take(pair)
        self._pair = None
        with contextlib.closing(pair):
            if given is None:
                self._over = time.monotonic()  # the source kept its session
                return
            self._handover, sockets = given
            states = (self._handover.guest_tls, self._handover.link_tls)
            ends = [with_state(*each) for each in zip(sockets, states, strict=False)]
            taken = self._take_over(pair, ends[1]) if self._handover.take_over else True
            if not taken or (not self._handover.take_over and not handover.say(pair, Custody.TAKEN)):
                for each in sockets:
                    each.close()
                self._over = time.monotonic()
                return
        self._guest = ends[0]
        self._keep.grant.restore = False  # for the next monitor: it is ours now
        if not self._handover.take_over:
            self._suspended_at = time.monotonic()
        self._control.send(node_pb2.FromServer(taken_over=migration_pb2.TakenOver(session=self._session())))
        if self._handover.take_over:
            self._start_relay(ends[1], self._keep.remote)
        self._log.info("guest kept", session=self._session(), remote=self._relay is not None)

    def _take_over(self, pair: socket.socket, link: Connection) -> bool:
        """In the source's place; whether the destination has the session."""
        assert self._keep is not None
        if not handover.say(pair, Custody.TAKING_OVER):
            return False
        try:
            take_over(Link(link), [])
        except Lost as error:
            if not arrived(self._inquiry):
                handover.say(pair, Custody.LOST, error.reason)
                return False
        except (LinkBroken, Refused) as error:
            handover.say(pair, Custody.REFUSED, error.reason)
            return False
        handover.say(pair, Custody.TAKEN)
        return True

    def _start_relay(self, link: Connection, remote: migration_pb2.RemoteTarget) -> None:
        assert self._keep is not None
        assert self._handover is not None
        assert self._guest is not None
        grant = self._keep.grant
        session = follow.session_of(remote.welcome)
        moved = follow.moved_frame(grant.resume_key, remote.key, session, remote.address)
        self._relay = Relay(
            self._guest,
            link,
            Frames(self._handover.request_head, self._handover.request_missing),
            Frames(b"", self._handover.reply_begun),
            moved,
        )

    def _pass_on(self, relay: Relay) -> None:
        if not relay.move():
            self._end(MOVED if relay.followed else LOST)

    @property
    def _stream(self) -> handover_pb2.Stream | None:
        """Of a suspended session that outlives its connection."""
        suspended = self._handover is not None and self._relay is None and self._handover.HasField("stream")
        return self._handover.stream if suspended and self._handover is not None else None

    def _hung_up(self, guest: Connection) -> None:
        """A guest that did not close the session may come back."""
        if self._stream is None or self._has_closed(guest):
            self._end(CLOSED)
            return
        assert self._keep is not None
        self._away_until = time.monotonic() + self._keep.grant.resume_seconds

    def _has_closed(self, guest: Connection) -> bool:
        """Reads what the guest has said; what was not its last word it says again."""
        assert self._handover is not None
        said = Frames(self._handover.request_head, self._handover.request_missing)
        op = 0
        with contextlib.suppress(OSError, Malformed):
            while data := guest.recv(RECEIVE, socket.MSG_DONTWAIT):
                for end in said.feed(data):
                    op = end[1]
        return op == CLOSE and said.between

    def _resume(self, resume: node_pb2.Resume, connection: Connection) -> None:
        """The guest, by another connection. Where the session may be gone nothing is said: it asks again."""
        stream = self._stream
        if stream is None or not self._is(resume.session):
            connection.close()
            return
        if self._playing is not None:
            self._playing.progress.cancel("its program lost its connection and came back with another")
            if self._comeback is not None:
                self._comeback[1].close()
            self._comeback = resume, connection
            return
        if not stream.kept <= resume.received <= stream.sent:
            with contextlib.suppress(OSError):
                connection.send(refusal(Reason.NO_SESSION, "the session cannot go on from there"), UNWAITING)
            connection.close()
            return
        answer = frames.frame(Frame.RESUMED, frames.Resumed(resume.proof, stream.received).pack())
        try:
            fine = connection.send(answer, UNWAITING) == len(answer)
        except OSError:
            fine = False
        if not fine:
            connection.close()  # it asks again
            return
        assert self._guest is not None
        self._guest.close()
        self._guest = connection
        self._came_back, self._away_until = True, None
        stream.sent = resume.received
        self._log.info("guest came back", session=resume.session, received=resume.received)

    def _play(self, play: node_pb2.Play, descriptors: list[int], tls: bytes) -> None:
        refusal = ""
        if not self._is(play.session) or len(descriptors) < 2:
            refusal = "the session is over"
        elif self._playing is not None or self._relay is not None:
            refusal = "it is being resumed already"
        if refusal or self._guest is None:
            for each in descriptors:
                os.close(each)
            moved = migration_pb2.Moved(session=play.session, reason=refusal)
            self._control.send(node_pb2.FromServer(moved=moved))
            return
        assert self._handover is not None
        file = ExistingFile(descriptors.pop(), play.path)
        first, *others = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        link = with_state(first, tls)
        self._inquiry = others.pop() if others else None
        self._playing = Playing(play, link, file, self._inquiry, self._guest, self._handover)

    def _listen(self, playing: Playing) -> None:
        for message in playing.progress.messages():
            self._control.send(message)
            if message.WhichOneof("message") == "moved":
                self._played(playing, message.moved)

    def _played(self, playing: Playing, moved: migration_pb2.Moved) -> None:
        playing.close()
        self._playing = None
        comeback, self._comeback = self._comeback, None
        if moved.moved and playing.play.HasField("remote") and self._keep is not None:
            self._keep.remote.CopyFrom(playing.play.remote)  # for the next monitor
        if moved.moved and playing.play.HasField("remote") and not (self._came_back or comeback):
            self._start_relay(playing.link, playing.play.remote)
            return
        playing.link.close()
        if moved.moved and playing.play.HasField("remote"):
            self._end(MOVED)  # it finds its session by way of the monitor, as whoever lost the connection
        elif moved.moved or moved.lost:
            self._keep = None  # who has the session comes to the next monitor, and nobody else may
            self._leave()
        elif self._end_after:
            self._revoke(self._end_after)
        elif comeback:
            self._resume(*comeback)
            return
        if comeback:
            comeback[1].close()

    def _revoke(self, end: End) -> None:
        """Tells the guest, if it is between two replies; else the end of the connection must do."""
        if self._playing is not None:
            self._end_after = end
            self._playing.progress.cancel(end.reason)
            return
        assert self._guest is not None
        assert self._handover is not None
        if self._relay is None and self._handover.reply_begun == 0 and not self._came_back:
            with contextlib.suppress(OSError):
                self._guest.send(refusal(Reason.BAD_REQUEST, end.reason), UNWAITING)
        self._end(end)

    def _end(self, end: End) -> None:
        """The session is over, or none of our business any more."""
        if self._playing is not None:
            self._end_after = end
            self._playing.progress.cancel("its program ended")
            return
        ended = node_pb2.SessionEnded(session=self._session(), reason=end.reason, cause=end.cause, clean=True)
        self._control.send(node_pb2.FromServer(ended=ended))
        self._leave()

    def _leave(self) -> None:
        self._over = time.monotonic()
        self._relay = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _find_home(self, keep: node_pb2.Keep) -> None:
        returned = node_pb2.Returned(spec_hash=wire.SPEC_HASH, ready=self._description(), grant=keep.grant)
        returned.session_seconds = (self._suspended_at or time.monotonic()) - self._since
        returned.migrating.session = self._session()
        if keep.HasField("remote"):
            returned.migrating.remote.CopyFrom(keep.remote)
        else:
            returned.migrating.file.CopyFrom(keep.file)
        guest = self._guest
        if self._control.look_for_monitor(returned, lambda: [os.dup(guest.fileno())] if guest else []):
            self._log.info("found a new monitor")

    def _description(self) -> node_pb2.Ready:
        return node_pb2.Ready(pid=os.getpid(), keeper=True)


class Playing:
    """The thread that plays a suspended session from its file to an API server."""

    def __init__(
        self,
        play: node_pb2.Play,
        link: Connection,
        file: ExistingFile,
        inquiry: socket.socket | None,
        guest: Connection,
        custody: handover_pb2.Handover,
    ) -> None:
        self.play = play
        self.link = link
        self._file = file
        self._inquiry = inquiry
        self.progress = Progress(play.session)
        self._guest = guest
        self._relayed = custody.relayed
        self._written = custody.stream.sent if custody.HasField("stream") else None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the thread to end, and close what it tells its progress with."""
        self._thread.join()
        self.progress.close()

    def _run(self) -> None:
        moved = migration_pb2.Moved(session=self.play.session)
        remote = self.play.remote if self.play.HasField("remote") else None
        player = None
        try:
            with self._file:
                reader = opened(self._file, self.play)
                link = Link(self.link, self.progress.stop)
                player = Player(reader, link, self.progress, self._written, remote.lacks if remote else ())
                welcome, guest = (remote.welcome, []) if remote else (None, [self._guest.fileno()])
                tls = state_of(self._guest) if guest else b""
                moved.report.CopyFrom(player.run(welcome, guest, self._relayed, tls))
            moved.moved = True
        except Lost as error:
            moved.moved = remote is not None and arrived(self._inquiry)
            moved.lost, moved.reason = not moved.moved, "" if moved.moved else error.reason
        except MigrationError as error:
            moved.reason = self.progress.cancelled if isinstance(error, Cancelled) else error.reason
        except Exception as error:
            traceback.print_exc()
            moved.reason = f"{type(error).__name__}: {error}"
        if player is not None and not moved.moved:
            moved.report.CopyFrom(player.report())
        self.progress.say(node_pb2.FromServer(moved=moved))


def opened(file: ExistingFile, play: node_pb2.Play) -> Snapshot:
    """The snapshot in the file that this keeper is to play. Raises SnapshotError."""
    return PlainReader(file) if play.unencrypted else Reader(file, play.key)


def refusal(reason: int, text: str) -> bytes:
    """A REFUSED frame for a guest whose session cannot go on."""
    return frames.frame(Frame.REFUSED, frames.Refused(reason, DEVICE_UNAVAILABLE).pack() + text.encode())


def arrived(inquiry: socket.socket | None) -> bool:
    """Whether the destination has the session, when it did not answer TAKE OVER: our monitor asks there.
    False if nobody knows.
    """
    if inquiry is None:
        return False
    with contextlib.suppress(OSError):
        inquiry.settimeout(ASK_SECONDS)
        inquiry.send(b"?")
        return inquiry.recv(1) == b"y"
    return False


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpuferry.apiserver.keeper", description="Keeps one guest; the monitor starts it."
    )
    parser.add_argument(
        "--control-fd", type=int, required=True, help="inherited SOCK_SEQPACKET socket to the monitor"
    )
    parser.add_argument("--confine-fd", type=int, help="a file that says what it gives up in a jail")
    options = parser.parse_args()
    if options.confine_fd is not None:
        confinement = Confinement.read(options.confine_fd)
        confinement.enter(options.control_fd)
        confinement.seal()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Keeper(options.control_fd).run()


if __name__ == "__main__":
    sys.exit(main())
