"""What a replica's process runs first. Standard library only, one file, Python 3.8 or newer.

    python wrapper.py '{"parent": 1234, "told": 5, "memory": 0, "command": ["./server"]}'
    python wrapper.py '{"parent": 1234, "told": 5, "memory": 0, "socket": 3, "orders": 4,
                        "file": "/…/handler.py", "folder": "/home/me/detect"}'

It forks once. The child is the replica; this process stays as its supervisor, under which all that comes of
the replica remains (a subreaper), and ends that with it. On `told` the server reads the replica's pid, and at
the end its status as `waitpid` gives it.

A program is executed in the replica's place. A Python file is imported once, and its `handle` answers
invocations one at a time. Frames on the socket are a length of JSON, a length of bytes, the JSON, the
bytes. Before a handler is called the server hears so: an invocation of which it has not heard that was
certainly not run. The orders are lines of JSON that are read beside the handler; their end is that of the
server, and of this process.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import types
from contextlib import suppress

TYPE_CHECKING = False  # to import typing would take a tenth of the start
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any, NoReturn

HEAD = struct.Struct("!IQ")
HEAD_MOST = 1 << 20  # bytes of JSON in a frame
HEADERS_MOST = 64 << 10  # characters of an answer's headers
TRACE_MOST = 16 << 10  # characters of a traceback
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_SECONDS = 5.0  # in which what is killed ends, unless the kernel holds it
LOOKS_LEAST = 100  # at what is left, if this process is held for as long
OOM_SCORE = b"500"  # when the machine has no memory left, replicas go before the servers
RTLD_NOLOAD = 4
NOT_INITIALIZED = 3
# After these CUDA's manual wants the process to end, or its GPU server is gone.
STICKY = frozenset({46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})


class Request:
    """An invocation as its handler sees it."""

    def __init__(self, head: dict[str, Any], body: bytes) -> None:
        self.id: int = head["id"]
        self.method: str = head["method"]
        self.path: str = head["path"]  # behind the function's name
        self.query: dict[str, str] = head["query"]  # names and values; of several with one name the last
        self.headers: dict[str, str] = joined(head["headers"])
        self.body = body
        self.cancelled = False  # whether the caller has gone away; it may become so at any time

    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def joined(headers: list[list[str]]) -> dict[str, str]:
    """Headers by name, in small letters. Of several with one name the values are one list, as HTTP has it."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value)
    return {name: ("; " if name == "cookie" else ", ").join(each) for name, each in values.items()}


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame."""
    text = json.dumps(head).encode()
    return b"".join((HEAD.pack(len(text), len(body)), text, body))


def answer_of(result: Any) -> tuple[Any, int, list[list[str]]]:
    """Content, status and headers of what a handler has returned. TypeError, ValueError: that is none."""
    status: Any = 200
    headers: Any = {}
    if isinstance(result, tuple):
        if not 1 < len(result) < 4:
            raise TypeError("handle returned neither (body, status) nor (body, status, headers)")
        result, status, headers = (*result, {})[:3]
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise ValueError(f"handle returned the status {status!r}: a number from 200 to 599 is wanted")
    if result is None and status == 200:
        status = 204
    given = headers.items() if hasattr(headers, "items") else headers  # a list may name one twice
    pairs = [[str(name), str(value)] for name, value in given]
    size = sum(len(name) + len(value) for name, value in pairs)
    if size > HEADERS_MOST:
        raise ValueError(f"handle returned headers of {size} characters, and may {HEADERS_MOST}")
    return result, status, pairs


def content_of(result: Any, verb: str = "returned") -> tuple[bytes, str]:
    """Bytes, and their type, of what a handler has returned or yielded. Raises TypeError or ValueError if it
    is nothing to send.
    """
    if result is None:
        return b"", ""
    if isinstance(result, str):
        return result.encode(), "text/plain; charset=utf-8"
    if isinstance(result, (dict, list)):
        return json.dumps(result, allow_nan=False).encode(), "application/json"
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result), "application/octet-stream"
    raise TypeError(f"handle {verb} {type(result).__name__}: bytes, str, dict, list or None is wanted")


def part_of(result: Any) -> tuple[bytes, str]:
    """The same of one of many: objects are lines of JSON then."""
    data, kind = content_of(result, "yielded")
    return (data + b"\n", "application/x-ndjson") if kind == "application/json" else (data, kind)


def typed(headers: list[list[str]], kind: str) -> list[list[str]]:
    """The headers with the content's type, unless the handler has said one."""
    said = any(name.lower() == "content-type" for name, _ in headers)
    return headers if said or not kind else [*headers, ["Content-Type", kind]]


def check_takes_one(handle: Any) -> None:
    """Raise TypeError for a plain function that cannot be called with one argument. Of other callables that
    is known when they are called: `inspect` knows, but takes longer to import than all the rest.
    """
    if not isinstance(handle, types.FunctionType):
        return
    code = handle.__code__
    takes_any = bool(code.co_flags & 0x04)  # CO_VARARGS
    if (not code.co_argcount and not takes_any) or code.co_argcount - len(handle.__defaults__ or ()) > 1:
        raise TypeError("handle takes one argument, the request")


class Replica:
    """The life of a Python function's process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._socket = socket.socket(fileno=config["socket"])
        self._socket.set_inheritable(False)
        self._orders = os.fdopen(config["orders"], "rb", buffering=0)
        os.set_inheritable(config["orders"], False)
        self._pid = os.getpid()
        self._handle: Callable[[Any], Any] | None = None
        self._takes_body = False
        self._loop: AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._current: Request | None = None  # the request that is being handled
        self._left = 0  # number of the last one whose caller has gone, perhaps before it was read
        self._task: Task[Any] | None = None

    def load(self, file: str, folder: str) -> None:
        """Import the file, whose neighbours in its own folder are to be found."""
        import importlib.util

        sys.path[0] = folder
        spec = importlib.util.spec_from_file_location("handler", file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["handler"] = module
        spec.loader.exec_module(module)
        self._handle = getattr(module, "handle", None)
        if not callable(self._handle):
            raise TypeError("the file has no function `handle`")
        check_takes_one(self._handle)
        code = getattr(self._handle, "__code__", None)
        self._takes_body = bool(code and code.co_varnames[:1] == ("body",))

    def say(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message to the function server, which reads it even if this process ends now."""
        if os.getpid() != self._pid:  # the handler has forked, and this is the child: the parent answers
            flush()
            os._exit(head["say"] == "raised")
        self._socket.sendall(pack(head, body))

    def listen(self) -> NoReturn:
        """Read orders until the server is gone; then this process ends, whatever its handler does."""
        held = b""
        while True:
            part = self._orders.read(4096)
            if not part:
                os._exit(1)
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                self._cancel(json.loads(line)["cancel"])

    def _cancel(self, number: int) -> None:
        with self._lock:
            self._left = number
            if self._current is not None and self._current.id == number:
                self._current.cancelled = True
                if self._task is not None and self._loop is not None:
                    self._loop.call_soon_threadsafe(self._task.cancel)

    def serve(self) -> None:
        """Answer invocations until the server wants no more."""
        while True:
            frame = self._read()
            if frame is None:
                return
            self._answer(Request(*frame))

    def _read(self) -> tuple[dict[str, Any], bytes] | None:
        head = self._exactly(HEAD.size)
        if head is None:
            return None
        text, body = HEAD.unpack(head)
        said, content = self._exactly(text), self._exactly(body)
        return None if said is None or content is None else (json.loads(said), bytes(content))

    def _exactly(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            part = self._socket.recv_into(view[got:])
            if not part:
                return None
            got += part
        return data

    def _answer(self, request: Request) -> None:
        with self._lock:
            self._current = request
            request.cancelled = request.id == self._left
        self.say({"say": "begun", "id": request.id})
        try:
            assert self._handle
            result = self._handle(request.body if self._takes_body else request)
            if hasattr(result, "__await__"):
                result = self._await(result)
            content, status, headers = answer_of(result)
            if hasattr(content, "__next__") or hasattr(content, "__anext__"):
                said, body = self._stream(request, content, status, headers), b""
            else:
                body, kind = content_of(content)
                headers = typed(headers, kind)
                said = {"say": "done", "id": request.id, "status": status, "headers": headers}
        except BaseException as error:  # SystemExit too: an invocation ends, and not its replica
            said, body = {"say": "raised", "id": request.id, **told(error), "gpu": gpu_error()}, b""
        with self._lock:
            self._current = self._task = None
        flush()
        self.say(said, body)

    def _stream(
        self, request: Request, content: Any, status: int, headers: list[list[str]]
    ) -> dict[str, Any]:
        """Send what a handler yields, part by part. Nothing is said before the first part is there: an
        exception until then is answered as any other.
        """
        parts = self._steps(content) if hasattr(content, "__anext__") else content
        said = {"id": request.id, "status": status, "headers": headers}
        begun = False
        try:
            for part in parts:
                data, kind = part_of(part)
                if not begun:
                    begun = True
                    self.say({"say": "begins", **said, "headers": typed(headers, kind)})
                if data:
                    self.say({"say": "part", "id": request.id}, data)
                if request.cancelled:
                    break
        finally:
            if hasattr(parts, "close"):
                parts.close()  # so that it is told, if its caller has gone
        return {"say": "ended" if begun else "done", **said}

    def _steps(self, parts: Any) -> Iterator[Any]:
        """What an asynchronous generator yields."""
        try:
            while True:
                try:
                    part = self._await(parts.__anext__())
                except StopAsyncIteration:
                    return
                yield part
        finally:
            if hasattr(parts, "aclose"):
                self._running_loop().run_until_complete(as_coroutine(parts.aclose()))

    def _running_loop(self) -> AbstractEventLoop:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _await(self, result: Awaitable[Any]) -> Any:
        loop = self._running_loop()
        task = loop.create_task(as_coroutine(result))
        with self._lock:
            self._task = task
            if self._current and self._current.cancelled:
                loop.call_soon(task.cancel)  # once it has begun: else nobody would ever await it
        return loop.run_until_complete(task)


def flush() -> None:
    """Write what was printed, if a handler has not closed that, or put something else in its place."""
    with suppress(Exception):
        sys.stdout.flush()


def gpu_error() -> int:
    """CUDA's error that this process will never get rid of: its context is lost, or it found no GPU server.
    0: there is none.
    """
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=RTLD_NOLOAD | os.RTLD_NOW)
        calls = (ctypes.c_uint64 * 32)()
        with suppress(AttributeError):  # which only the guest library has
            driver.gpuferry_stats(calls)
            if not any(calls):
                return 0
        status: int = driver.cuStreamQuery(None)
        if status == NOT_INITIALIZED and any(calls):
            return int(driver.cuInit(0))  # the first one's outcome
    except (OSError, AttributeError):  # it uses no GPU
        return 0
    return status if status in STICKY else 0


async def as_coroutine(result: Awaitable[Any]) -> Any:
    """A coroutine that awaits this: a task is made of nothing else."""
    return await result


def told(error: BaseException) -> dict[str, str]:
    """What is said of an exception. The traceback begins in the function's own file."""
    import traceback

    frames = each = error.__traceback__
    while each is not None:
        if each.tb_next is not None and each.tb_frame.f_code.co_filename == __file__:
            frames = each.tb_next
        each = each.tb_next
    text = "".join(traceback.format_exception(type(error), error.with_traceback(frames), frames))
    with suppress(Exception):  # if a handler has closed that, or put something else in its place
        sys.stderr.write(text)
        sys.stderr.flush()
    try:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
    except Exception:
        why = f"{type(error).__name__}, whose text cannot be made"
    return {"why": why[:1000], "trace": text[-TRACE_MOST:]}


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, as prctl(2) does."""
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def supervise(config: dict[str, Any]) -> None:
    """Return in a child. This process ends after it, once nothing is left of what the child has started:
    neither what has a session of its own nor what has lost its parent. So it does when the server dies or
    wants it (SIGTERM); SIGUSR1 asks the child to end.
    """
    import signal

    waited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != config["parent"]:
        os._exit(1)
    supervisor = os.getpid()
    child = os.fork()
    if not child:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # whoever kills the supervisor
        if os.getppid() != supervisor:
            os._exit(1)
        os.close(config["told"])
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    try:
        for name in ("socket", "orders"):
            if name in config:
                os.close(config[name])  # whose end is the child's
        tell(config, child)
        ended: dict[int, int] = {}
        while child not in ended:
            number = signal.sigwait(waited)
            if number == signal.SIGTERM:
                break
            if number == signal.SIGUSR1:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGTERM)
            reap(ended, (child,))
        end_all(ended, (child,))
        if child in ended:
            tell(config, ended[child])
    finally:
        os._exit(0)


def tell(config: dict[str, Any], number: int) -> None:
    """Write the number as a line to the server; nothing if the server is gone."""
    with suppress(OSError):
        os.write(config["told"], b"%d\n" % number)


def reap(ended: dict[int, int], wanted: tuple[int, ...]) -> None:
    """Take leave of the children that have ended, and keep the status of these."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in wanted:
                ended[pid] = status


def end_all(ended: dict[int, int], wanted: tuple[int, ...]) -> None:
    """Kill all that has come of this process, and what comes of that meanwhile, until nothing is left."""
    import signal
    import time

    late, looks = time.monotonic() + END_SECONDS, 0
    while looks < LOOKS_LEAST or time.monotonic() < late:
        looks += 1
        reap(ended, wanted)
        found = descendants(os.getpid())
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def descendants(pid: int, most: int = 1 << 30) -> list[int]:
    """The pids of the processes that have come of this one; of more than `most` not all, but some more."""
    found = [pid]
    for each in found:
        with suppress(OSError):  # it is gone
            for thread in os.listdir(f"/proc/{each}/task"):  # each has children of its own
                with open(f"/proc/{each}/task/{thread}/children", "rb") as children:
                    found += map(int, children.read().split())
        if len(found) > most:
            break
    return found[1:]


def confine(config: dict[str, Any]) -> None:
    """Limits of this process and of what comes of it."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
        score.write(OOM_SCORE)
    if config["memory"]:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (config["memory"], config["memory"]))


def main(config: dict[str, Any]) -> None:
    """Become the program, or serve the file."""
    supervise(config)
    confine(config)
    if "command" in config:
        command = config["command"]
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.exit(f"cannot execute {command[0]}: {error.strerror}")
    replica = Replica(config)
    threading.Thread(target=replica.listen, daemon=True, name="gpuferry-orders").start()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        replica.load(config["file"], config["folder"])
    except BaseException as error:
        replica.say({"say": "failed", **told(error)})
        sys.exit(1)
    replica.say({"say": "ready"})
    replica.serve()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
