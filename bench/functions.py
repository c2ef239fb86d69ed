"""What the function server adds to a handler's own time, and what a start from nothing costs."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median
from threading import Thread

from gpuferry.guest import launch

from tests.helpers.monitor import monitor
from tests.helpers.running import server_environment
from tests.residency.lodgers import Operator

from .migration import floor
from .rows import Row, cost

RATE, SECONDS = 100.0, 6.0  # invocations a second, for so long
COLD = 15
BODY = b"x" * 1000
SOURCE = "def handle(request):\n    return request.body\n"
READY_SECONDS = 60.0
SIZE, ROUNDS = 256 << 20, 5  # of a model that leaves and returns
MODEL = f"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, model = ctypes.c_void_p(), ctypes.c_uint64()
for status in (
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuMemAlloc_v2(ctypes.byref(model), {SIZE}),
    cuda.cuMemsetD8_v2(model, 1, {SIZE}),
    cuda.cuCtxSynchronize(),
):
    assert not status, status

def handle(request):
    word = ctypes.c_uint32()
    assert not cuda.cuMemcpyDtoH_v2(ctypes.byref(word), model, 4)
    return request.body
"""
CLI = (sys.executable, "-m", "gpuferry.monitor.cli.main", "functions")


class Plain(BaseHTTPRequestHandler):
    """The least that answers HTTP: the floor."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else its second write waits for the caller's acknowledgement, 40 ms

    def do_POST(self) -> None:
        """Answer with the request's body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log no request."""


@contextmanager
def serving(settings: Mapping[str, str] | None = None) -> Iterator[tuple[str, Path]]:
    """A function server's address, and the folder in which it publishes. `settings`: of its environment."""
    folder = Path(tempfile.mkdtemp(prefix="gf-bench-", dir="/tmp"))
    environment = {
        **server_environment(),
        **(settings or {}),
        "GPUFERRY_RUNTIME_DIR": str(folder / "run"),
        "GPUFERRY_STATE_DIR": str(folder / "state"),
        "NOTIFY_SOCKET": str(folder / "notices"),
    }
    command = [*CLI, "serve", "--listen", "127.0.0.1:0", "--log-level", "warning"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(folder / "notices"))
        notices.settimeout(READY_SECONDS)
        process = subprocess.Popen(command, env=environment)
        try:
            notices.recv(4096)
            published = folder / "run" / "functions"
            lines = (published / "endpoint").read_text().splitlines()
            entries = dict(line.split("=", 1) for line in lines)
            yield entries["GPUFERRY_FUNCTIONS"], folder
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def deploy(folder: Path, *options: str, source: str = SOURCE) -> None:
    """Deploy the echo by the command that users have."""
    file = folder / "echo.py"
    file.write_text(source)
    environment = {**os.environ, "GPUFERRY_RUNTIME_DIR": str(folder / "run")}
    command = [*CLI, "deploy", "echo", str(file), *options]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def steady(*targets: tuple[str, str]) -> list[float]:
    """The medians of invocations in seconds, of each address and path in turn, at the promised rate."""
    connections = [(http.client.HTTPConnection(*_split(address)), path) for address, path in targets]
    took: list[list[float]] = [[] for _ in targets]
    begin = time.perf_counter()
    for number in range(int(RATE * SECONDS)):
        time.sleep(max(begin + number / RATE - time.perf_counter(), 0))
        for times, (connection, path) in zip(took, connections, strict=True):
            times.append(invoke(connection, path))
    for connection, _ in connections:
        connection.close()
    return [median(times) for times in took]


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def invoke(connection: http.client.HTTPConnection, path: str) -> float:
    """Invoke a function; return the seconds until its answer was read. Raises RuntimeError."""
    began = time.perf_counter()
    connection.request("POST", path, BODY)
    answer = connection.getresponse()
    if answer.read() != BODY or answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status}")
    return time.perf_counter() - began


def once(address: str) -> float:
    """Seconds of an invocation on a connection of its own."""
    connection = http.client.HTTPConnection(*_split(address))
    try:
        return invoke(connection, "/function/echo")
    finally:
        connection.close()


def cold(address: str) -> float:
    """The median of an invocation that finds no replica."""
    took: list[float] = []
    while len(took) < COLD:
        connection = http.client.HTTPConnection(*_split(address))
        began = time.perf_counter()
        connection.request("POST", "/function/echo", BODY)
        answer = connection.getresponse()
        answer.read()
        if answer.headers["X-Gpuferry-Start"] == "cold":
            took.append(time.perf_counter() - began)
        connection.close()
        time.sleep(0.5)  # idle replicas are looked for five times a second
    return median(took)


def returning() -> tuple[float, float]:
    """Seconds by which an invocation is longer whose model must return to its GPU, and of the copy alone."""
    options = ("--pool", "1", "--oversubscribe", "1", "--away-memory", "1GiB", "--log-level", "warning")
    device = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "1GiB"}
    with monitor(*options, environment=device) as gpus:
        operator = Operator(gpus)
        with serving(gpus.settings() | {"GPUFERRY_CONTROL": gpus.control}) as (address, folder):
            deploy(folder, "--replicas", "1..1", "--gpu-memory", "256MiB", source=MODEL)
            warm = median(once(address) for _ in range(4 * ROUNDS))
            back, copied = [], []
            for _ in range(ROUNDS):
                operator.evict(operator.session().id)
                back.append(once(address) - warm)
                copied.append(floor("copy", SIZE))
        operator.close()
    return min(back), min(copied)


def bare() -> float:
    """Seconds of a Python with the guest preloaded that does nothing: the floor of a start."""
    environment = launch.guest_environment({})
    took = []
    for _ in range(COLD):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
        took.append(time.perf_counter() - began)
    return median(took)


def rows() -> list[Row]:
    """Rows of a warm invocation, beside plain HTTP at the same rate, and of one that starts a replica."""
    server = HTTPServer(("127.0.0.1", 0), Plain)
    Thread(target=server.serve_forever, daemon=True).start()
    with serving() as (address, folder):
        deploy(folder)
        warm, floor = steady((address, "/function/echo"), (f"127.0.0.1:{server.server_address[1]}", "/"))
        deploy(folder, "--idle", "0")
        started = cold(address)
    back, copied = returning()
    server.shutdown()
    server.server_close()
    return [
        cost("function_warm", warm * 1e3, floor * 1e3, "ms"),
        cost("function_cold", started * 1e3, bare() * 1e3, "ms"),
        cost("function_return", back * 1e3, copied * 1e3, "ms"),
    ]
