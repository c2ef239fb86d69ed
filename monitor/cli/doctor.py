"""`gpuferry doctor`: everything that a program needs, checked one by one, each failure with what to do."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from gpuferry.guest import launch, paths
from gpuferry.guest.endpoint import Endpoint
from gpuferry.guest.paths import LibraryMissing
from gpuferry.specs._generated import wire
from rich.console import Console
from rich.text import Text

from .. import device, handshake
from ..config import ConfigError
from . import reach
from .errors import CliError, Exit

SCHEMA = "gpuferry.doctor/1"
SECONDS = 60.0
NO_DEVICES = 0xFFFFFFFF  # more than any session has: the handshake is checked whole, and no session granted
_STYLES = {"ok": "green", "note": "yellow", "failed": "bold red"}


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    result: str  # ok, note or failed
    detail: str
    next_step: str = ""


def _python(code: str, environment: dict[str, str], python: str = sys.executable) -> tuple[int, str]:
    """Exit status and what it printed; of what went wrong, the last line."""
    try:
        done = subprocess.run(
            [python, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    if done.returncode:
        return done.returncode, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return 0, done.stdout.strip()


# The property that matters: a program that loads the driver by its SONAME gets the preloaded file.
_SONAME = """
import ctypes, sys
ctypes.CDLL("libcuda.so.1").cuInit
if not any(line.rstrip().endswith(LIBRARY) for line in open("/proc/self/maps")):
    sys.exit("libcuda.so.1 resolved to another file")
"""


def _library(name: str, find: Callable[[], str]) -> Check:
    try:
        path = find()
    except LibraryMissing as error:
        return Check(name, "failed", str(error), "`make build`, or install a wheel")
    code = f"LIBRARY = {os.path.realpath(path)!r}" + _SONAME
    status, output = _python(code, launch.inject(launch.clean_environment(), path))
    if status:
        return Check(name, "failed", f"{path}: {output}", "build it again: `make build`")
    return Check(name, "ok", path)


def _gpu() -> Check:
    count, reason = device.probe(simulated=False)
    if count:
        return Check("GPU", "ok", f"{count} found")
    return Check(
        "GPU", "note", f"none here: {reason}", "fine for guests; a monitor offers the simulated device"
    )


def _simulated() -> Check:
    try:
        count, reason = device.probe(simulated=True)
    except LibraryMissing as error:
        count, reason = 0, str(error)
    if count:
        return Check("simulated device", "ok", f"{count} answering")
    return Check("simulated device", "failed", reason, "`make build`, or install a wheel")


def _compiler() -> Check:
    python = os.environ.get("GPUFERRY_SIM_PYTHON", sys.executable)
    code = "import llvmlite, gpuferry.native; print(llvmlite.__version__)"
    status, output = _python(code, launch.clean_environment(), python)
    if status:
        hint = "`pip install 'gpuferry[sim]'`, or point GPUFERRY_SIM_PYTHON at a Python that has it"
        return Check("compiler of the simulated device", "failed", f"{python}: {output}", hint)
    return Check("compiler of the simulated device", "ok", f"{python}, llvmlite {output}")


def _settings() -> Check:
    try:
        simulated, count = device.choose(None)
    except ConfigError as error:
        return Check("what a monitor would offer", "failed", str(error))
    return Check("what a monitor would offer", "ok", f"{count} {'simulated' if simulated else 'real'}")


def _read_refusal(connection: socket.socket) -> tuple[int, str]:
    frame = b""
    while part := connection.recv(4096):
        frame += part
    body = frame[handshake.HEADER.size :]
    if len(body) < handshake.REFUSED.size:
        raise OSError("the connection closed without an answer")
    reason, _ = handshake.REFUSED.unpack_from(body)
    return int(reason), body[handshake.REFUSED.size :].decode(errors="replace")


def _shake_hands(found: Endpoint) -> tuple[int, str]:
    """A whole HELLO that asks for what no session has; the reason and text with which it is refused."""
    with reach.connect(found.address) as connection:
        greeting = connection.recv(reach.GREETING_SIZE, socket.MSG_WAITALL)
        server_nonce = greeting[-32:]
        connection.sendall(
            handshake.hello(
                (found.token or "").encode(),
                server_nonce,
                secrets.token_bytes(32),
                devices=NO_DEVICES,
                program="gpuferry doctor",
            )
        )
        return _read_refusal(connection)


def _monitor(flag: str | None, token_file: str | None) -> Iterator[Check]:
    """Reachable, same version, same spec, right token."""
    try:
        found = reach.locate(flag, token_file)
        version = reach.greet(found)
    except CliError as error:
        yield Check("monitor", "failed", error.what, error.hint)
        return
    where = f"{found.address} (from {found.source})"
    yield Check("monitor", "ok", f"answers at {where}")
    if version != wire.PROTOCOL_VERSION:
        detail = f"it speaks {version}, this gpuferry {wire.PROTOCOL_VERSION}"
        yield Check("protocol version", "failed", detail, "install the same gpuferry on both machines")
        return
    try:
        reason, text = _shake_hands(found)
    except OSError as error:
        yield Check("handshake", "failed", str(error), "see the monitor's log")
        return
    hints: dict[int, str] = {
        handshake.Reason.DENIED: "set GPUFERRY_TOKEN to the monitor's, or GPUFERRY_TOKEN_FILE to its file",
        handshake.Reason.SPEC: "install the same gpuferry on both machines",
    }
    if reason == handshake.Reason.BAD_REQUEST:
        yield Check("token and spec", "ok", "accepted")
        yield _cuda_program(found)
    else:
        yield Check("token and spec", "failed", text, hints.get(reason, "see the monitor's log"))


# A program's first steps, through NVIDIA's own runtime if a wheel brought one, else through the driver.
_PROGRAM = """
import ctypes, glob, os, sys
def must(status, what):
    if status: sys.exit(f"{what} answered with error {status}")
import importlib.util
found = importlib.util.find_spec("nvidia")
roots = list(found.submodule_search_locations) if found else []
runtimes = [p for r in roots for p in glob.glob(os.path.join(r, "**", "libcudart.so.1[23]"), recursive=True)]
data, back, size = bytes(range(256)) * 16, ctypes.create_string_buffer(4096), ctypes.c_size_t(4096)
pointer = ctypes.c_void_p()
if runtimes:
    rt = ctypes.CDLL(runtimes[0])
    must(rt.cudaMalloc(ctypes.byref(pointer), size), "cudaMalloc")
    must(rt.cudaMemcpy(pointer, data, size, 1), "cudaMemcpy to the device")
    must(rt.cudaMemcpy(back, pointer, size, 2), "cudaMemcpy from the device")
    name = os.path.basename(runtimes[0])
else:
    cu, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    must(cu.cuInit(0), "cuInit")
    must(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    must(cu.cuMemAlloc_v2(ctypes.byref(pointer), size), "cuMemAlloc")
    must(cu.cuMemcpyHtoD_v2(pointer, data, size), "cuMemcpyHtoD")
    must(cu.cuMemcpyDtoH_v2(back, pointer, size), "cuMemcpyDtoH")
    name = "the driver API"
if back.raw != data: sys.exit("other bytes came back than were sent")
print(name)
"""


def _cuda_program(found: Endpoint) -> Check:
    environment = launch.guest_environment(launch.guest_settings(found, function="gpuferry doctor"))
    status, output = _python(_PROGRAM, environment)
    if status:
        return Check(
            "a CUDA program", "failed", output, "see the monitor's log; GPUFERRY_LOG=debug shows the guest's"
        )
    return Check("a CUDA program", "ok", f"4 KiB to the device and back, with {output}")


def checks(monitor: str | None, token_file: str | None) -> Iterator[Check]:
    """In the order in which things depend on each other."""
    yield _library("guest library", paths.guest_library)
    yield _library("simulated driver", paths.simulated_driver)
    yield _gpu()
    yield _simulated()
    yield _compiler()
    yield _settings()
    yield from _monitor(monitor, token_file)


def run_doctor(monitor: str | None, token_file: str | None, as_json: bool) -> int:
    """0 if nothing failed."""
    console = Console(highlight=False, soft_wrap=True)
    done = []
    for check in checks(monitor, token_file):
        done.append(check)
        if not as_json:
            console.print(
                Text.assemble((f"{check.result:7}", _STYLES[check.result]), f"{check.name}: {check.detail}")
            )
            if check.next_step:
                console.print(Text(f"       -> {check.next_step}"))
    failed = any(check.result == "failed" for check in done)
    if as_json:
        print(
            json.dumps(
                {"schema": SCHEMA, "ok": not failed, "checks": [asdict(check) for check in done]}, indent=2
            )
        )
    return Exit.FAILED if failed else Exit.OK
