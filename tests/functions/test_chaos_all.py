"""Everything is killed while 20 functions are invoked: replicas, API servers, monitor, registry and function
server. Each invocation is answered once, rightly, or with an error that says whether it ran.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.server import TOKEN, GpuServer
from tests.helpers.running import real_gpu
from tests.registry.running import Registry, registry

from .serving import Got, Server, serving, until
from .test_chaos import MARKS, holds

PLAIN, CUDA, PROGRAMS, CALLERS = 10, 6, 4, 6
SECONDS = float(os.environ.get("GPUFERRY_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("GPUFERRY_CHAOS_SEED", "0")) or random.randrange(1 << 30)

# Answers what it has read back from the GPU.
ON_GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()

def check(status):
    if status: raise RuntimeError(f"error {status}")

def load():
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), 1 << 20))

def handle(request):
    path, mark = request.text().split()
    with open(path, "a") as marks: marks.write(mark + "\\n")
    if not address.value: load()
    said = mark.encode().ljust(64)
    back = ctypes.create_string_buffer(64)
    check(cuda.cuMemcpyHtoD_v2(address, said, 64))
    check(cuda.cuMemcpyDtoH_v2(back, address, 64))
    return back.raw.decode().strip()
"""
PROGRAM = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        path, mark = self.rfile.read(int(self.headers["Content-Length"])).decode().split()
        with open(path, "a") as marks: marks.write(mark + "\\n")
        self.send_response(200)
        self.send_header("Content-Length", str(len(mark)))
        self.end_headers()
        self.wfile.write(mark.encode())
    def log_message(self, *_): pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
NAMES = [
    *(f"plain-{number}" for number in range(PLAIN)),
    *(f"cuda-{number}" for number in range(CUDA)),
    *(f"program-{number}" for number in range(PROGRAMS)),
]


class Stage:
    """The function server of now, and what its callers have heard."""

    def __init__(self, folder: Path, gpus: GpuServer, where: Registry) -> None:
        self._folder = folder
        self.registry = where
        self._environment = {
            "GPUFERRY_MONITOR": where.address,
            "GPUFERRY_TOKEN": TOKEN,
            "GPUFERRY_CONTROL": f"unix:{gpus.runtime.parent}/control",
        }
        self._stack = contextlib.ExitStack()
        self.server = self._serve()
        self.answers: dict[str, Got] = {}
        self.broken: set[str] = set()  # whose connections broke: nobody can know whether they ran
        self.refused: set[str] = set()  # that had no connection
        self.marks = folder / "marks"
        self.marks.touch()

    def _serve(self) -> Server:
        return self._stack.enter_context(
            serving("--policy", "mqfq", folder=self._folder, environment=self._environment)
        )

    def restart(self) -> None:
        """Killed, and started again."""
        self.server.process.kill()
        self.server.process.wait()
        self._stack.pop_all().close()
        self.server = self._serve()

    def close(self) -> None:
        self._stack.close()

    def deploy(self) -> None:
        program = self._folder / "program.py"
        program.write_text(PROGRAM)
        for name in NAMES:
            if name.startswith("program"):
                self.server.deploy(name, command=[sys.executable, str(program)], most=2, concurrency=2)
            elif name.startswith("cuda"):
                self.server.deploy(name, ON_GPU, most=2, gpu_memory=32 << 20)
            else:
                self.server.deploy(name, MARKS, most=2)

    def call(self, caller: int, over: threading.Event) -> None:
        """Invoke one function after the other until it is over."""
        pick, number = random.Random(f"{SEED}/{caller}"), 0
        while not over.is_set():
            mark, number = f"{caller}-{number}", number + 1
            try:
                self.answers[mark] = self.server.invoke(pick.choice(NAMES), body=f"{self.marks} {mark}")
            except ConnectionRefusedError:
                self.refused.add(mark)
                over.wait(0.05)
            except (OSError, http.client.HTTPException):
                self.broken.add(mark)


@pytest.fixture
def stage() -> Iterator[tuple[Stage, GpuServer]]:
    folder = Path(tempfile.mkdtemp(prefix="gf-chaos-", dir="/tmp"))
    key, token = folder / "cluster.key", folder / "token"
    for path, secret in ((key, secrets.token_hex(32)), (token, TOKEN)):
        path.write_text(secret)
        path.chmod(0o600)
    options = ("--cluster-key-file", str(key), "--token-file", str(token), "--max-wait", "20")
    with (
        registry(*options) as where,
        GpuServer(2, 8, "--registry", where.control, "--cluster-key-file", str(key)) as gpus,
    ):
        gpus.wait_whole()
        where.register(gpus.tcp)
        stage = Stage(folder, gpus, where)
        try:
            yield stage, gpus
        finally:
            stage.close()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(real_gpu(), reason="on the simulated device")
def test_everything_is_killed(stage: tuple[Stage, GpuServer]) -> None:
    functions, gpus = stage
    functions.deploy()
    over = threading.Event()
    callers = [
        threading.Thread(target=functions.call, args=(number, over), daemon=True) for number in range(CALLERS)
    ]
    for caller in callers:
        caller.start()
    deeds = _kill(functions, gpus, random.Random(SEED))
    over.set()
    for caller in callers:
        caller.join(120)
        assert not caller.is_alive(), f"seed {SEED}: an invocation has no answer"
    kinds = Counter(got.status for got in functions.answers.values())
    print(f"seed {SEED}: {dict(deeds)}; {dict(kinds)}, {len(functions.broken)} broken")
    holds(functions.answers, functions.marks)
    ran = Counter(functions.marks.read_text().split())
    assert all(ran[mark] == 0 for mark in functions.refused)
    assert all(ran[mark] <= 1 for mark in functions.broken), f"seed {SEED}"
    assert kinds[200] > sum(deeds.values())
    for name in NAMES:  # and all goes on as before
        body = f"{functions.marks} after"
        got = until(lambda: functions.server.invoke(name, body=body), lambda got: got.status == 200)  # noqa: B023
        assert got.body == b"after"


def _kill(functions: Stage, gpus: GpuServer, pick: random.Random) -> Counter[str]:
    deeds: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(pick.uniform(0.05, 0.5))
        kinds = ("replica", "api server", "monitor", "function server", "registry")
        kind = pick.choices(kinds, (10, 4, 1, 1, 2))[0]
        deeds[kind] += 1
        if kind == "replica":
            shown = json.loads(functions.server.system("GET", "functions").body)["functions"]
            pids = [one["pid"] for each in shown for one in each["replicas"] if one["pid"]]
            _end(pids, pick)
        elif kind == "api server":
            _end(gpus.api_servers(), pick)
        elif kind == "monitor":
            gpus.kill()
            time.sleep(pick.uniform(0.0, 1.0))
            gpus.start()
        elif kind == "registry":
            functions.registry.kill()
            time.sleep(pick.uniform(0.0, 1.0))
            functions.registry.start()
        else:
            functions.restart()
    return deeds


def _end(pids: list[int], pick: random.Random) -> None:
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pick.choice(pids), signal.SIGKILL)
