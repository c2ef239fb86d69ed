"""The monitor's side of the arbiter's process: starts and watches it, tells it who is there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from gpuferry.specs._generated import node_pb2

from ..policy.place import Place, Residence
from ..policy.sharing import Sharing
from ..pool.api_server import ApiServer, PoolListener, State
from ..pool.channel import ChannelBroken
from ..service.restarts import Restarts
from ..service.waiting import within
from .gpu import Use
from .shares import Wishes
from .words import new_page

PACKET_MOST = 64 << 10
ROOM = 4 << 20  # bytes that may wait for an arbiter, or for us
PAUSE_SECONDS = 0.05  # before another is started in place of the first that ended
PING_SECONDS = 1.0
SILENT_SECONDS = 10.0  # who does not answer for so long is ended
REPORT_SECONDS = 0.5
AGAIN_SECONDS = 1.0  # until an API server is told of the arbiter for which no descriptor was free

log = structlog.get_logger()


@dataclass(frozen=True)
class GpuTurns:
    """What the arbiter last said of one GPU."""

    span: int  # nanoseconds of which each `used` is a part
    handed: int
    overruns: int
    waited: int  # nanoseconds
    own: int  # nanoseconds of the API servers' own work
    sessions: Mapping[int, Use]

    def share(self, session: int) -> float:
        """The part of the window that the session has had."""
        use = self.sessions.get(session)
        return use.used / self.span if use else 0.0


class Office(PoolListener):
    """One arbiter process for all GPUs, for as long as there is a monitor."""

    def __init__(
        self,
        sharing: Sharing,
        overrun: int,
        servers: Callable[[], Iterable[ApiServer]],
        wishes: Callable[[int], Wishes],
        anticipate: Callable[[int, Sequence[int]], None] | None = None,
        residence: Callable[[int], Residence] | None = None,
    ) -> None:
        """`servers`: all that there are. `wishes`: what a session may have. `anticipate`: hears which session
        is about to have a turn and is not there, and who has one meanwhile. `residence`: where the memory is
        of the session that this API server has.
        """
        self._sharing, self._overrun, self._servers, self._wishes = sharing, overrun, servers, wishes
        self._anticipate = anticipate
        self._residence = residence
        self._control: socket.socket | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._connected: dict[int, ApiServer] = {}  # API servers with a way to this arbiter, by key
        self._told: dict[int, tuple[int, Wishes]] = {}  # what the arbiter knows of each of them
        self._untold = deque[tuple[bytes, list[int]]]()  # orders, and descriptors beside them, until it reads
        self._refreshing = False
        self._heard = 0.0  # when it last said something
        self._asking: list[asyncio.Future[None]] = []
        self._coming: dict[int, GpuTurns] = {}  # a report, as far as it came
        self.gpus: dict[int, GpuTurns] = {}  # the last report, by device
        self.starts = 0  # arbiters that were started

    @property
    def sharing(self) -> Sharing:
        """How this server's sessions take turns, as it was set."""
        return self._sharing

    def wishes(self, session: int) -> Wishes:
        """Return the shares of GPU time that a session asked for (`request`) and may not exceed (`limit`)."""
        return self._wishes(session)

    @property
    def pid(self) -> int:
        """Process id of the arbiter; 0: there is none now."""
        return self._child.pid if self._child and self._control else 0

    async def run(self) -> None:
        """Keep an arbiter, and start another if it ends, until cancelled."""
        restarts = Restarts(PAUSE_SECONDS)
        while True:
            restarts.begin()
            reason = "it ended"
            try:
                await self._keep_one()
            except OSError as error:  # there is no memory to start it, say
                reason = error.strerror or str(error)
            finally:
                self._lose()
            log.error("no arbiter of turns: sessions are free until the next one is there", reason=reason)
            await restarts.pause()

    async def _keep_one(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        ours.setblocking(False)
        settings = {
            "sharing": asdict(self._sharing),
            "overrun": self._overrun,
            "soon": self._anticipate is not None,
        }
        command = (sys.executable, "-m", "gpuferry.monitor.arbiter", "--control-fd", str(theirs.fileno()))
        try:
            with theirs:
                child = await asyncio.create_subprocess_exec(
                    *command,
                    json.dumps(settings),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._child, self._control, self._heard = child, ours, time.monotonic()
        self.starts += 1
        try:
            for server in self._servers():
                self._introduce(server)
            await self._listen(ours)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _listen(self, control: socket.socket) -> None:
        """Until it closes its end, or says nothing for long."""
        while data := await self._packet(control):
            self._heard = time.monotonic()
            self._hear(json.loads(data))

    async def _packet(self, control: socket.socket) -> bytes:
        """The next thing that it says, as it is asked to now and then; nothing: it is gone, or hangs."""
        receiving = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(control, PACKET_MOST))
        try:
            while not (await asyncio.wait({receiving}, timeout=PING_SECONDS))[0]:
                if time.monotonic() > self._heard + SILENT_SECONDS:
                    log.error("the arbiter of turns does not answer", arbiter=self.pid)
                    return b""
                self._order({"do": "ping"})
            return receiving.result()
        except OSError:
            return b""
        finally:
            receiving.cancel()

    def _lose(self) -> None:
        control, self._control = self._control, None
        if control:
            asyncio.get_running_loop().remove_writer(control)
            control.close()
        while self._untold:
            self._forget_first()
        self._connected.clear()
        self._told.clear()
        self.gpus = {}
        self._answer()

    # -- what it says

    def _hear(self, said: Mapping[str, Any]) -> None:
        if "device" in said:
            self._note(said)
        elif "reported" in said:
            self.gpus, self._coming = self._coming, {}
            self._answer()
        elif "soon" in said and self._anticipate:
            self._anticipate(said["soon"], said["spared"])
        elif "broken" in said:
            server = self._connected.pop(said["broken"], None)
            if server:
                log.error("an API server lied to the arbiter", server=server.pid, reason=said["reason"])
                server.kill()

    def _note(self, said: Mapping[str, Any]) -> None:
        # What came of a report whose end was lost is of another one.
        before = None if said["first"] else self._coming.get(said["device"])
        sessions = dict(before.sessions) if before else {}
        for session, *use in said["uses"]:
            if session:
                sessions[session] = Use(*use)
        self._coming[said["device"]] = GpuTurns(
            span=said["span"],
            handed=said["handed"],
            overruns=said["overruns"],
            waited=said["waited"],
            own=said["own"],
            sessions=sessions,
        )

    async def report(self) -> None:
        """Ask for fresh figures, and wait a little for them; without an answer the last ones stay."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._asking and not self._order({"do": "report"}):
            return
        self._asking.append(answered)
        with contextlib.suppress(asyncio.TimeoutError):
            await within(REPORT_SECONDS, answered)
        if answered in self._asking:
            self._asking.remove(answered)

    def _answer(self) -> None:
        asking, self._asking = self._asking, []
        for answered in asking:
            if not answered.done():
                answered.set_result(None)

    # -- what API servers do

    def server_ready(self, server: ApiServer) -> None:
        if not (server.session or server.restoring):  # whoever heard of it before may have given it one
            self._free(server)
        self._introduce(server)

    def session_granted(self, server: ApiServer, session: int) -> None:
        self._introduce(server)
        self.refresh()

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        self._introduce(server)

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        self._free(server)

    def server_lost(self, server: ApiServer) -> None:
        if self._connected.pop(server.key, None):
            self._order({"do": "remove", "key": server.key})
        self._told.pop(server.key, None)
        self.refresh()

    def refresh(self) -> None:
        """Soon look again at what each session may have: that of processes of one program changes when
        another comes or goes.
        """
        if not self._refreshing and self._control:
            self._refreshing = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._refreshing = False
        for server in list(self._connected.values()):
            session = server.session or server.restoring
            if session and self._told.get(server.key) != (session, self._wishes(session)):
                self._introduce(server)

    def _introduce(self, server: ApiServer) -> None:
        """To the arbiter: the API server, if it does not know it, and the session that it has or gets."""
        if not self._control or server.is_keeper or server.outdated or not server.ready:
            return
        if server.state is State.STOPPING:
            return
        if server.key not in self._connected and not self._connect(server):
            return
        session = server.session or server.restoring
        if session:
            wishes = self._wishes(session)
            self._told[server.key] = (session, wishes)
            self._order({"do": "assign", "key": server.key, "session": session, **wishes._asdict()})
            if self._residence and (residence := self._residence(server.key)).place is not Place.HERE:
                self.place(server.key, residence)

    def place(self, key: int, residence: Residence) -> None:
        """The memory of the session that this API server has is elsewhere now, or here again."""
        if key in self._connected:
            least = round(residence.seconds * 1e9)
            self._order({"do": "place", "key": key, "place": residence.place.value, "least": least})

    def _connect(self, server: ApiServer) -> bool:
        order = {"do": "add", "key": server.key, "devices": server.devices}
        with contextlib.ExitStack() as stack:
            try:
                ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours, theirs = map(stack.enter_context, ends)
                page = new_page()
                stack.callback(os.close, page)
                if not self._order(order, ours.fileno(), page):
                    return False
                server.send(node_pb2.ToServer(turns=node_pb2.Turns()), theirs, _File(page))
            except ChannelBroken:
                return False  # its end is about to be noticed
            except OSError as error:  # no descriptor is free, say
                log.error("an API server takes no turns yet", server=server.pid, error=str(error))
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._introduce, server)
                return False
        self._connected[server.key] = server
        return True

    def _free(self, server: ApiServer) -> None:
        self._told.pop(server.key, None)
        if server.key in self._connected:
            self._order({"do": "free", "key": server.key})
            self.refresh()

    def _order(self, order: Mapping[str, Any], *files: int) -> bool:
        """False: there is no arbiter, or it is ended because it cannot be told; the next one is told all."""
        if not self._control:
            return False
        data = json.dumps(order).encode()
        try:
            if not self._untold:
                socket.send_fds(self._control, [data], files)
                return True
        except BlockingIOError:  # it has just started, or has much to do
            asyncio.get_running_loop().add_writer(self._control, self._tell_on)
        except OSError as error:
            self._give_up(error)
            return False
        self._untold.append((data, [os.dup(file) for file in files]))
        return True

    def _tell_on(self) -> None:
        """The arbiter reads again: it is given the orders for which there was no room."""
        assert self._control
        try:
            while self._untold:
                data, files = self._untold[0]
                socket.send_fds(self._control, [data], files)
                self._forget_first()
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(error)
        asyncio.get_running_loop().remove_writer(self._control)

    def _forget_first(self) -> None:
        _, files = self._untold.popleft()
        for file in files:
            os.close(file)

    def _give_up(self, error: OSError) -> None:
        log.error("the arbiter of turns does not listen", arbiter=self.pid, error=str(error))
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()


@dataclass(frozen=True)
class _File:
    number: int

    def fileno(self) -> int:
        return self.number


def _environment() -> dict[str, str]:
    """It needs to find its own code, and nothing of what we know."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
