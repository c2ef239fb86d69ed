"""A replica that is any program which speaks HTTP on $PORT."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from ..service.waiting import within
from .deployment import Deployment
from .invocation import Answer, Call, Code, Failed, Lost, NotBegun, Ran
from .logbook import plain
from .process import KILL_SECONDS, Process
from .replica import Begins, Heard, Replica

PROBE_SECONDS = (0.005, 0.1)  # between two looks whether it listens: at first, at last
EVENTS = "text/event-stream"
ENDING_SECONDS = 0.05  # between the end of a connection and that of its process
# Of one connection, and what the server sets itself.
HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade", "content-length", "host", "expect"),
        "x-gpuferry-invocation",
    }
)
NUMBER = "X-Gpuferry-Invocation"


class ProgramReplica(Replica):
    """A program; as many invocations at once as its deployment says."""

    LATE = "it did not listen on $PORT"

    def __init__(self, deployment: Deployment, heard: Heard) -> None:
        super().__init__(deployment, heard)
        self._port = 0
        self._client: aiohttp.ClientSession | None = None
        self._connections: _Connections | None = None

    async def _begin(self, environment: Mapping[str, str]) -> None:
        self._port = _ports.take()
        port = str(self._port)
        command = [word.replace("$PORT", port) for word in self.deployment.command]
        self.process = Process(
            {"memory": self.deployment.memory, "command": command},
            {**environment, "PORT": port},
            "",
            self.deployment.folder,
            (),
            self.hear,
        )
        await self._listens()
        self._connections = _Connections()
        self._client = aiohttp.ClientSession(
            connector=self._connections,
            middlewares=(_once,),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def _listens(self) -> None:
        assert self.process
        pause, most = PROBE_SECONDS
        while not self.process.gone.is_set():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            else:
                writer.close()
                return
        raise self.never_ready("listened on $PORT")

    async def invoke(self, number: int, call: Call, begins: Begins) -> Answer | None:
        assert self._client
        url = f"http://127.0.0.1:{self._port}{call.path or '/'}" + (f"?{call.query}" if call.query else "")
        headers = [(name, value) for name, value in call.headers if name.lower() not in HOP]
        headers.append((NUMBER, str(number)))
        assert self._connections
        self._connections.expect(number)
        try:
            async with self._client.request(
                call.method,
                URL(url, encoded=True),
                headers=headers,
                data=call.body or None,
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            ) as response:
                kept = tuple((n, v) for n, v in response.headers.items() if n.lower() not in HOP)
                if not _comes_in_parts(response):
                    length = response.content_length if call.method == "HEAD" else None
                    return Answer(response.status, kept, await self._body(response), length=length)
                stream = begins(Answer(response.status, kept, b""))
                async for part in _parts(response):
                    await stream.put(part)
                    if stream.left:  # it did not heed the end of its caller: that of its connection it will
                        break
                return None
        except aiohttp.ClientConnectorError as error:
            if error.errno != errno.ECONNREFUSED:  # this server lacks something, or its queue is full
                why = f"the program cannot be reached: {error.strerror}"
                raise Failed(Code.REFUSED, why, retry_after=1.0) from None
            self.retiring = True  # nobody listens there any more; what it was asked before may still end
            await self._look()
            raise NotBegun from None
        except (_Broken, aiohttp.ClientError) as error:
            await self._look()
            why = f"the program gave no answer: {_text(error)}"
            if self.reason:
                raise Lost(self.reason.code, self.reason.why, Ran.UNKNOWN) from None
            if not self.alive and self.process:
                raise Lost(Code.CRASHED, f"{why}; {self.process.status}", Ran.UNKNOWN) from None
            raise Failed(Code.BAD_ANSWER, why, Ran.UNKNOWN) from None
        finally:
            self._connections.forget(number)

    async def _look(self) -> None:
        """A process that is ending has closed its connections a little earlier. How it ended its supervisor
        tells, which may be late.
        """
        assert self.process
        with contextlib.suppress(asyncio.TimeoutError):
            await within(KILL_SECONDS if self.process.ending else ENDING_SECONDS, self.process.gone.wait())

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        parts, size, most = [], 0, self.deployment.body
        async for part in _parts(response):
            size += len(part)
            if size > most:
                raise Failed(Code.BAD_ANSWER, f"the answer has more than {most} bytes", Ran.YES)
            parts.append(part)
        return b"".join(parts)

    def cancel(self, number: int) -> None:
        if self._connections:
            self._connections.end(number)

    async def end(self, grace: float) -> None:
        if self._client:
            await self._client.close()
        await super().end(grace)
        _ports.give_back(self._port)
        self._port = 0  # it may be another's now, when this is called again


def _comes_in_parts(response: aiohttp.ClientResponse) -> bool:
    """Whether it is passed on as it comes: it has no length, and says where it ends, or never ends. Of others
    without a length nobody could tell a half one from a whole one.
    """
    chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
    return chunked or ("Content-Length" not in response.headers and response.content_type == EVENTS)


async def _parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The answer's parts. Raises _Broken, ClientError."""
    try:
        async for part in response.content.iter_any():
            yield part
    except RuntimeError as error:  # aiohttp's, where the connection was lost between two parts
        raise _Broken(str(error)) from None


def _text(error: Exception) -> str:
    """What was wrong in a line, without where: the address is of no use to a caller. It may quote the
    program.
    """
    said = getattr(error, "message", "")
    if isinstance(error, aiohttp.ServerDisconnectedError):  # with half a head, if anything
        said = "it hung up"
    return plain(" ".join(str(said or error or type(error).__name__).split()))


class _Broken(Exception):
    """The connection broke after it was made."""


class _Connections(aiohttp.TCPConnector):
    """A connector with one connection for each invocation, which it finds by the invocation's number."""

    def __init__(self) -> None:
        super().__init__(limit=0, force_close=True)
        self._of: dict[str, asyncio.WriteTransport | None] = {}  # None: it is not made yet
        self._ended: set[str] = set()

    def expect(self, number: int) -> None:
        """Announce an invocation, before its connection is made."""
        self._of[str(number)] = None

    def forget(self, number: int) -> None:
        """Forget an invocation that is over."""
        del self._of[str(number)]
        self._ended.discard(str(number))

    def end(self, number: int) -> None:
        """Say to the program that its caller will say no more: it reads the end, and may still answer, which
        tells when it has ended.
        """
        if str(number) in self._of:
            self._ended.add(str(number))
        if (transport := self._of.get(str(number))) and not transport.is_closing():
            transport.write_eof()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection for this request. Raises ClientConnectionError if its caller has gone already."""
        made = await super().connect(req, traces, timeout)
        number = req.headers[NUMBER]
        if number in self._ended:
            made.close()
            raise aiohttp.ClientConnectionError("its caller has gone")
        self._of[number] = made.transport
        return made


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Ask one time: aiohttp asks again where HTTP calls a method idempotent, and the invocation may have
    run.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Broken(_text(error)) from None


class Ports:
    """The ports on which programs of this server listen, or are about to."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """A free port that no other program of this server is going to have."""
        while (port := _free_port()) in self._taken:
            pass
        self._taken.add(port)
        return port

    def give_back(self, port: int) -> None:
        """Release the port of a program that has ended."""
        self._taken.discard(port)


_ports = Ports()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
