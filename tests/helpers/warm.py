"""Commands of ours that begin at once: forked from a Python that has imported all that they need.

To import takes a command longer than what most tests want of it. `Popen` is subprocess's, except that a
command that begins with `CLI`, `POINTED_CLI`, `API_SERVER` or `ENGINE` is not executed but forked, with the
descriptors and the environment that it would have. It is a child of whoever asks, as any other. It is
executed only where a sanitizer's runtime must be loaded first, modules are to be found elsewhere
(PYTHONPATH), or an API server is to begin otherwise than the warm one did (`EARLY`). API servers of a
monitor, and those that come to named points, are always executed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gpuferry.guest import paths
from gpuferry.native.descriptors import receive

from tests.helpers import pointed
from tests.helpers.paths import ROOT

MODULE = "gpuferry.monitor.cli.main"
CLI = [sys.executable, "-m", MODULE]
POINTED_CLI = [sys.executable, pointed.POINTED, MODULE]
API_SERVER = [sys.executable, "-m", "gpuferry.apiserver"]
ENGINE = [sys.executable, "-m", "tests.apiserver.engine"]
# Variables that are read when a process begins, or imports a module: who wants others is executed.
EARLY = ("PYTHON", "LD_", "GPUFERRY_LOG_LEVEL")
# gRPC reads it when it is imported: what the CLI says in a forked process comes too late.
AS_THE_CLI_SAYS = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"}
COMMANDS, SERVERS = "commands", "servers"
PR_SET_CHILD_SUBREAPER = 36
HIGH = 200  # above any descriptor that is asked for
MOST = 64  # descriptors
REQUEST = 1 << 18


class Popen(subprocess.Popen[Any]):
    """Takes what subprocess's takes, as far as tests use it."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        executable, preexec_fn, close_fds, pass_fds, cwd, env = rest[:6]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = rest[9:15]
        start_new_session = rest[20]
        command = [os.fspath(each) for each in args] if isinstance(args, Sequence) else []
        environment = dict(os.environ if env is None else env)
        warm = _warm(command, environment)
        if warm is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        assert executable is None
        assert preexec_fn is None
        assert close_fds
        standard = (p2cread, c2pwrite, errwrite)
        fds = {number: number if fd == -1 else fd for number, fd in enumerate(standard)}
        request = {
            "module": command[2],
            "pointed": command[1] == pointed.POINTED,
            "arguments": command[3:],
            "environment": environment,
            "folder": os.fspath(cwd or os.getcwd()),
            "session": bool(start_new_session),
        }
        self.pid = _fork(warm, request, fds | {fd: fd for fd in pass_fds})
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


_lock = threading.Lock()


def _warm(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What is preloaded in the warm Python that this command can be forked from; None: there is none."""
    of = list(command[: len(CLI)])
    if os.environ.get("GPUFERRY_SANITIZER"):
        return None
    if of in (CLI, POINTED_CLI):
        return "" if environment.get("PYTHONPATH") in (os.environ.get("PYTHONPATH"), str(ROOT)) else None
    driver = paths.simulated_driver()
    if of not in (API_SERVER, ENGINE) or environment.get("LD_PRELOAD") != driver:
        return None
    return driver if _early(environment) == _early(os.environ) else None


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(EARLY) and name != "LD_PRELOAD"
    }


def _fork(preload: str, request: Mapping[str, Any], fds: Mapping[int, int]) -> int:
    """The pid of a child of ours, in which these descriptors have these numbers."""
    server, _ = _server(preload)
    data = json.dumps({**request, "numbers": list(fds)}).encode()
    with _lock:
        _adopt(True)
        try:
            socket.send_fds(server, [data], list(fds.values()))
            return int(server.recv(64))
        finally:
            _adopt(False)


def _adopt(orphans: bool) -> None:
    """Become the parent of processes that lose theirs, as one that forks twice does; or stop to."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


@functools.cache
def _server(preload: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that forks warm ones. It ends when its socket is closed, with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            theirs.setsockopt(socket.SOL_SOCKET, option, REQUEST)
            ours.setsockopt(socket.SOL_SOCKET, option, REQUEST)
        kind = SERVERS if preload else COMMANDS
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), kind]
        environment = os.environ | ({"LD_PRELOAD": preload} if preload else {})
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
        )
    atexit.register(_end, ours, process)
    return ours, process


def _end(server: socket.socket, process: subprocess.Popen[bytes]) -> None:
    server.close()
    process.wait()


def prepare_servers() -> None:
    """All that an API server and an engine import. The driver is loaded, and nothing is asked of it."""
    importlib.import_module("gpuferry.apiserver.driver").stand_in()
    for module in ("gpuferry.apiserver.__main__", "gpuferry.apiserver.server", ENGINE[2]):
        importlib.import_module(module)


def prepare_commands() -> None:
    """All that the CLI and the daemons import."""
    os.environ |= AS_THE_CLI_SAYS
    os.environ |= importlib.import_module(MODULE).TLS_1_3_ONLY
    package = importlib.import_module(MODULE.rpartition(".cli")[0])
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    rehearse()
    for name in AS_THE_CLI_SAYS:  # programs need not know
        del os.environ[name]


def serve(control: socket.socket, prepare: Callable[[], None]) -> str:
    """Returns the command's module in each process that is forked to be it. Ends with whoever asks."""
    before = dict(os.environ)
    prepare()
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()
    while True:
        data, fds = receive(control, REQUEST, MOST)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            if pid := os.fork():
                os.write(writing, str(pid).encode())
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0002)
            for fd in (reading, writing, control.detach()):
                os.close(fd)
            return _become(json.loads(data), fds, added)
        os.waitpid(between, 0)  # its child is of whoever asks now
        control.send(os.read(reading, 64))
        for fd in (reading, writing, *fds):
            os.close(fd)


def rehearse() -> None:
    """A command whose options are parsed: Typer imports what it needs for that, which is much, no sooner."""
    sys.argv = [MODULE, "token", "new"]
    with contextlib.redirect_stdout(io.StringIO()):
        status = importlib.import_module(MODULE).main()
    assert status == 0


def _become(request: Mapping[str, Any], fds: Sequence[int], added: Mapping[str, str]) -> str:
    """The descriptors, environment and arguments that it would have been executed with; its module."""
    if request["session"]:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, HIGH + number)
        os.close(fd)
    for number, target in enumerate(request["numbers"]):
        os.dup2(HIGH + number, target)
        os.close(HIGH + number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    module: str = request["module"]
    sys.argv = [module, *request["arguments"]]
    if request["pointed"]:
        pointed.prepare()
    return module


def be_server(module: str) -> NoReturn:
    """Run an API server's module as `python -m` does, and exit at once when it returns."""
    main = importlib.import_module(module if module == ENGINE[2] else f"{module}.__main__").main
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def leave(status: int) -> None:
    """Exit as Python does, but take nothing down: that takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    commands = sys.argv[2] == COMMANDS
    module = serve(socket.socket(fileno=int(sys.argv[1])), prepare_commands if commands else prepare_servers)
    if commands:
        leave(importlib.import_module(module).main())
    be_server(module)
