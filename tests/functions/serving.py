"""A function server for tests: a process of its own, with a folder of its own, and functions whose deeds a
request names.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.logs import shown_on_failure
from tests.helpers.running import server_environment
from tests.helpers.warm import CLI, Popen

DEADLINE = 120.0
_numbers = count()

# What a request's `do` says. Two named pipes make a rendezvous: the test knows that the handler is there, and
# says when it may go on.
DEEDS = """
import asyncio, os, signal, sys, time
import json as j

def meet(request):
    with open(request.query["here"], "w") as here:
        here.write(str(os.getpid()))
    with open(request.query["go"]) as go:
        return go.read()

leaked = []

def handle(request):
    do = request.query.get("do", "echo")
    if do == "echo": return request.body
    if do == "pid": return str(os.getpid())
    if do == "meet": return meet(request)
    if do == "raise": raise ValueError("not that")
    if do == "exit": sys.exit(3)
    if do == "crash": os._exit(7)
    if do == "fault": os.kill(os.getpid(), signal.SIGSEGV)
    if do == "odd": os.kill(os.getpid(), 40)  # which has no name
    if do == "loop":
        while True: pass
    if do == "leak":
        while True: leaked.append(bytearray(1 << 20))
    if do == "large": return bytes(int(request.query["size"]))
    if do == "say": print(request.text()); return ""
    if do == "told":
        with open(request.query["here"], "w") as here: here.write("1")
        while not request.cancelled: time.sleep(0.001)
        with open(request.query["go"], "w") as go: go.write("told")
    if do == "evaluate": return eval(request.text())
    if do == "facts":
        return {"method": request.method, "path": request.path, "query": request.query,
                "headers": request.headers, "body": request.text()}
"""


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ran(self) -> str:
        return self.headers["X-Gpuferry-Ran"]

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


@dataclass
class Server:
    """A running function server."""

    process: Any
    folder: Path
    address: str = ""
    token: str = ""

    def connection(self) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        return http.client.HTTPConnection(host, int(port), timeout=DEADLINE)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Got:
        connection = self.connection()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.headers.items()), answer.read())
        finally:
            connection.close()

    def system(self, method: str, path: str, said: object = None) -> Got:
        body = None if said is None else json.dumps(said)
        return self.ask(method, f"/system/{path}", body, Authorization=f"Bearer {self.token}")

    def deploy(self, name: str, source: str = DEEDS, **settings: Any) -> Got:
        kind = {} if "command" in settings else {"source": source}
        got = self.system("PUT", f"functions/{name}", {**kind, "folder": "/", **settings})
        assert got.status == 200, got
        return got

    def invoke(self, name: str, do: str = "echo", body: bytes | str = b"", **query: object) -> Got:
        asked = "&".join(f"{key}={value}" for key, value in {"do": do, **query}.items())
        return self.ask("POST", f"/function/{name}?{asked}", body)

    def show(self, name: str) -> dict[str, Any]:
        function: dict[str, Any] = json.loads(self.system("GET", f"functions/{name}").body)["function"]
        return function

    def logs(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.system("GET", f"functions/{name}/logs").body.splitlines()]

    def knows_gpus(self, count: int = 1) -> list[dict[str, Any]]:
        """Those that it knows, once it knows so many: it is ready without them where the GPU server is late,
        and what was deployed by then is on none.
        """
        seen: list[dict[str, Any]] = until(
            lambda: json.loads(self.system("GET", "status").body)["server"]["gpus"],
            lambda gpus: len(gpus) >= count,
        )
        return seen

    def becomes(self, name: str, what: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The function, once this holds of it."""
        seen: dict[str, Any] = until(lambda: self.show(name), what)
        return seen


def until(look: Callable[[], Any], what: Callable[[Any], object]) -> Any:
    """What is seen, once this holds of it."""
    deadline = time.monotonic() + DEADLINE
    while not what(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    return seen


class Asked:
    """An invocation beside the test."""

    def __init__(self, ask: Callable[[], Got]) -> None:
        self._got: Got | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], Got]) -> None:
        try:
            self._got = ask()
        except Exception as error:  # shown where it is asked for
            self._got = error

    def got(self) -> Got:
        self._thread.join(DEADLINE)
        if isinstance(self._got, Exception):
            raise self._got
        assert self._got, "no answer"
        return self._got

    def failure(self) -> Exception:
        """Why there is no answer."""
        self._thread.join(DEADLINE)
        assert isinstance(self._got, Exception), self._got
        return self._got


def leave(server: Server, path: str) -> socket.socket:
    """A caller who is about to go."""
    host, _, port = server.address.rpartition(":")
    caller = socket.create_connection((host, int(port)))
    caller.sendall(f"POST {path} HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: 0\r\n\r\n".encode())
    return caller


class Meeting:
    """A handler that is held: it says that it is there, and waits."""

    def __init__(self, server: Server, name: str, do: str = "meet") -> None:
        number = next(_numbers)
        self._here, self._go = server.folder / f"here-{number}", server.folder / f"go-{number}"
        os.mkfifo(self._here)
        os.mkfifo(self._go)
        self.query: dict[str, Any] = {"here": self._here, "go": self._go}
        self.asked = Asked(lambda: server.invoke(name, do, **self.query))

    def come(self) -> int:
        """Until it is there; its pid."""
        return int(self._here.read_text())

    def go(self, text: str) -> None:
        self._go.write_text(text)

    def hear(self) -> str:
        """What it says at the end, where its deed does."""
        return self._go.read_text()


@contextlib.contextmanager
def serving(
    *options: str,
    command: list[str] | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start one, wait until it is ready, and end it. `folder`: of an earlier one, with its functions."""
    kept = folder
    folder = folder or Path(tempfile.mkdtemp(prefix="gf-functions-", dir="/tmp"))
    log = folder / "server.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, log.open("ab") as output:
        (folder / "notices").unlink(missing_ok=True)
        notices.bind(str(folder / "notices"))
        notices.settimeout(DEADLINE)
        process = Popen(
            [*(command or CLI), "functions", "serve", "--listen", "127.0.0.1:0", *options],
            env={
                **server_environment(),
                "GPUFERRY_RUNTIME_DIR": str(folder / "run"),
                "GPUFERRY_STATE_DIR": str(folder / "state"),
                "NOTIFY_SOCKET": str(folder / "notices"),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        server = Server(process, folder)
        try:
            with shown_on_failure(log):
                assert notices.recv(4096).startswith(b"READY=1"), log.read_text()
                published = folder / "run" / "functions"
                entries = dict(
                    line.split("=", 1) for line in (published / "endpoint").read_text().splitlines()
                )
                server.address = entries["GPUFERRY_FUNCTIONS"]
                server.token = (published / "token").read_text().strip()
                yield server
        finally:
            stop(process)
            if kept is None:
                shutil.rmtree(folder, ignore_errors=True)


def stop(process: Any) -> None:
    """Ask it to end, and wait. Raises subprocess.TimeoutExpired if it does not: then it is killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()


def gone(pid: int) -> bool:
    """Whether there is no such process, or only what its parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


PYTHON = sys.executable
