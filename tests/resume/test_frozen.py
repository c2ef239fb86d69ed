"""The sandboxes of serverless platforms, as guest/IMAGES.md has them: next to nothing there, and frozen at
any time. Their images' wrapper is the one of that page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.certificates import certificates
from tests.helpers.paths import ROOT
from tests.helpers.processes import descendants
from tests.monitor import harness

from .cutter import Cutter
from .test_lives import disconnected

GONE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE
# Stands for a platform's runtime. It loads the function, of which each line is an invocation: what was on the
# GPU before the first of them is read.
RUNTIME = """
import ctypes, json, os, resource, sys
cu, context, model = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
weights = bytes(range(256)) * 4096
done = [
    cu.cuInit(0),
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cu.cuCtxSetCurrent(context),
    cu.cuMemAlloc_v2(ctypes.byref(model), len(weights)),
    cu.cuMemcpyHtoD_v2(model, weights, len(weights)),
]
for line in sys.stdin:
    back = ctypes.create_string_buffer(len(weights))
    done.append(cu.cuMemcpyDtoH_v2(back, model, len(weights)))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    world = [os.access("/", os.W_OK), os.path.exists("/dev/shm"), files]
    print(json.dumps([done, back.raw == weights, world]), flush=True)
"""
FEW = 16  # descriptors
BARE = [False, False, FEW]


def wrapper() -> str:
    """What the page puts into /opt/gpuferry-wrapper."""
    (found,) = re.findall(r"printf '([^']*)' > /opt/gpuferry-wrapper", (ROOT / "guest/IMAGES.md").read_text())
    return str(found).encode().decode("unicode_escape").replace("%%", "%")


class Sandbox:
    """A read-only root, /tmp alone to write to, no /dev/shm, another user without a home, few descriptors."""

    def __init__(self, image: Path, settings: dict[str, str], secret: Path, authority: Path) -> None:
        (image / "runtime.py").write_text(RUNTIME)
        (image / "wrapper").write_text(wrapper())
        (image / "wrapper").chmod(0o755)
        seen = {secret: "/run/secrets/token", authority: "/run/ca.crt", image: "/run/image"}
        scripts = Path(sys.executable).parent
        settings = settings | {
            "PATH": f"{scripts}:/usr/bin:/bin",
            "GPUFERRY_TOKEN_FILE": "/run/secrets/token",
            "GPUFERRY_TLS_CA": "/run/ca.crt",
            "AWS_LAMBDA_EXEC_WRAPPER": "/run/image/wrapper",
        }
        command = ["bwrap", "--ro-bind", "/", "/", "--tmpfs", "/dev", "--tmpfs", "/run"]
        command += ["--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom"]
        for outside, inside in seen.items():
            command += ["--ro-bind", str(outside), inside]
        command += ["--tmpfs", "/tmp", "--remount-ro", "/dev", "--proc", "/proc", "--clearenv"]
        command += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", "993", "--gid", "990"]
        for name, value in settings.items():
            command += ["--setenv", name, value]
        begin = f'ulimit -n {FEW}; exec "$AWS_LAMBDA_EXEC_WRAPPER" {sys.executable} /run/image/runtime.py'
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*command, "sh", "-c", begin], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def invoke(self) -> list[object]:
        """One invocation: what the handler returned as JSON; if the program has ended, its errors alone."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        return list(json.loads(said)) if said else [self._process.communicate()[1]]

    def everybody(self, number: signal.Signals) -> None:
        """As a platform freezes it, or lets it go on."""
        for pid in descendants(self._process.pid) - {os.getpid()}:
            os.kill(pid, number)

    def finish(self) -> str:
        """Wait for the program's end; what it wrote on standard error."""
        return self._process.communicate(timeout=harness.DEADLINE)[1]

    def kill(self) -> None:
        if self._process.poll() is None:
            self.everybody(signal.SIGKILL)
            self._process.communicate()


@pytest.fixture
def monitor() -> Iterator[harness.Monitor]:
    options = ("--pool", "1", "--resume-grace", "600", "--oversubscribe", "2", *certificates().flags())
    with harness.monitor(*options, server=None) as running:
        running.wait_idle(1)
        yield running


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_function_in_a_sandbox_that_is_frozen_goes_on(monitor: harness.Monitor, tmp_path: Path) -> None:
    secret, authority = tmp_path / "token", Path(certificates().flags()[-1])
    secret.write_text(f"{monitor.token}\n")
    image = tmp_path / "image"
    image.mkdir()
    with Cutter(monitor.tcp) as network:
        settings = {"GPUFERRY_MONITOR": f"tls://{network.address}", "GPUFERRY_ON_LOSS": "reconnect"}
        sandbox = Sandbox(image, settings, secret, authority)
        try:
            assert sandbox.invoke() == [[0] * 6, True, BARE]
            (number,) = [session.id for session in monitor.status().sessions]
            sandbox.everybody(signal.SIGSTOP)
            evicted = monitor.run("session", "evict", str(number))
            assert evicted.returncode == 0, evicted.stderr
            sandbox.everybody(signal.SIGCONT)
            assert sandbox.invoke() == [[0] * 7, True, BARE]
            sandbox.everybody(signal.SIGSTOP)
            network.cut()  # nobody answers there any more, as the monitor notices
            disconnected(monitor)
            sandbox.everybody(signal.SIGCONT)
            assert sandbox.invoke() == [[0] * 8, True, BARE]
            sandbox.everybody(signal.SIGSTOP)
            network.cut()
            disconnected(monitor)
            assert monitor.run("session", "kill", str(number)).returncode == 0  # as when the grace is over
            monitor.wait_idle(1)
            sandbox.everybody(signal.SIGCONT)
            assert sandbox.invoke() == [[0] * 8 + [GONE], False, BARE]
            assert "could not be resumed" in sandbox.finish()
        finally:
            sandbox.kill()
