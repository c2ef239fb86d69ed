"""The monitor (or registry): reachable, of the same version, accepting the token, and able to serve."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuferry.guest import launch
from gpuferry.guest.endpoint import Endpoint
from gpuferry.specs._generated.frames import (
    NONCE_SIZE,
    PROTOCOL_VERSION,
    Frame,
    Header,
    Reason,
    Refused,
)

from ...door import handshake
from ...service.versions import package_version, spec_hash
from ...settings.errors import ConfigError
from .. import reach
from ..errors import CliError
from ..quick import not_for_servers
from .check import Check, python

if TYPE_CHECKING:
    from gpuferry.specs._generated import control_pb2

NO_DEVICES = 0xFFFFFFFF  # more than any session has: the handshake is checked whole, and no session granted
SECONDS = 5.0
MAX_WAIT = 30  # seconds, for an API server: so the program says why there is none before it is ended


def _read_refusal(connection: socket.socket) -> tuple[int, str]:
    frame = b""
    while part := connection.recv(4096):
        frame += part
    if len(frame) >= Header.SIZE and Header.unpack(frame).op == Frame.REDIRECT:
        return Reason.BAD_REQUEST, "a registry, which sends guests on"
    if len(frame) < Header.SIZE + Refused.SIZE:
        raise OSError("the connection closed without an answer")
    refused = Refused.unpack(frame, Header.SIZE)
    return refused.reason, frame[Header.SIZE + Refused.SIZE :].decode(errors="replace")


def _shake_hands(found: Endpoint) -> tuple[int, str]:
    """A whole HELLO that asks for what no session has; the reason and text with which it is refused."""
    with reach.connect(found) as connection:
        greeting = reach.read_greeting(connection)
        if greeting is None:
            raise OSError("it does not speak gpuferry's protocol any more")
        connection.sendall(
            handshake.hello(
                (found.token or "").encode(),
                greeting,
                secrets.token_bytes(NONCE_SIZE),
                devices=NO_DEVICES,
                program="gpuferry doctor",
            )
        )
        return _read_refusal(connection)


def monitor_checks(flag: str | None, token_file: str | None) -> Iterator[Check]:
    """Check the monitor step by step; a step is taken only if those before it went well."""
    try:
        found = reach.locate(flag, token_file)
        version = reach.greet(found).version
    except CliError as error:
        yield Check("monitor", "failed", error.what, error.hint)
        return
    where = f"{found.address} (from {found.source})"
    yield Check("monitor", "ok", f"answers at {where}")
    if version != PROTOCOL_VERSION:
        detail = f"it speaks {version}, this gpuferry {PROTOCOL_VERSION}"
        yield Check("protocol version", "failed", detail, "install the same gpuferry on both machines")
        return
    try:
        reason, text = _shake_hands(found)
    except OSError as error:
        yield Check("handshake", "failed", str(error), "see the monitor's log")
        return
    hints: dict[int, str] = {
        Reason.DENIED: "set GPUFERRY_TOKEN to the monitor's, or GPUFERRY_TOKEN_FILE to its file",
        Reason.SPEC: "install the same gpuferry on both machines",
    }
    if reason == Reason.BAD_REQUEST:
        yield Check("token and spec", "ok", "accepted")
        yield from _service(flag, token_file)
        yield _cuda_program(found)
    else:
        yield Check("token and spec", "failed", text, hints.get(reason, "see the monitor's log"))


def _service(flag: str | None, token_file: str | None) -> Iterator[Check]:
    """What the control port says, if it can be reached: it serves this machine alone."""
    # Whose control port the published one is, is not known if there is a flag.
    if flag or not_for_servers():
        return
    from gpuferry.specs._generated import control_pb2

    from ..client import monitor_client

    try:
        with monitor_client(None, token_file) as (stub, metadata):
            reply = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=SECONDS)
    except CliError as error:
        if _is_its_own():
            yield Check("control", "failed", error.what, error.hint or "see the monitor's log")
        return
    except ConfigError as error:  # what it should be spoken to with cannot be used
        yield Check("control", "failed", str(error), error.hint or "see `gpuferry config show`")
        return
    theirs, ours = reply.monitor.version, package_version()
    if theirs != ours or reply.monitor.spec_hash.hex() != spec_hash():
        detail = f"the monitor runs gpuferry {theirs}, this is {ours}"
        yield Check("version", "failed", detail, "restart the monitor: `systemctl restart gpuferry-monitor`")
    else:
        yield Check("version", "ok", f"gpuferry {ours} on both sides")
    yield from devices(reply)
    idle = sum(device.pool_idle for device in reply.devices)
    total = sum(device.pool_size for device in reply.devices)
    if any(server.state != control_pb2.SERVER_STATE_STARTING for server in reply.servers):
        yield Check("API servers", "ok", f"{idle} of {total} idle")
    else:
        yield Check("API servers", "failed", f"none of {total} is ready", "see the monitor's log")


def _is_its_own() -> bool:
    """Whether the control port that is known here was named, or is that of the monitor that was looked at.
    Guests on other machines know none.
    """
    if os.environ.get("GPUFERRY_CONTROL"):
        return True
    return not os.environ.get("GPUFERRY_MONITOR") and "GPUFERRY_CONTROL" in reach.published()


def devices(reply: control_pb2.StatusReply) -> Iterator[Check]:
    """Say which devices do not serve, and why."""
    for device in reply.devices:
        if device.problem:
            name = f"GPU {device.ordinal} of the monitor"
            step = "the monitor tries again by itself; its log says more"
            yield Check(name, "failed", device.problem, step)


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
    asked = launch.guest_settings(found, function="gpuferry doctor")
    environment = launch.guest_environment(asked | {"GPUFERRY_MAX_WAIT": str(MAX_WAIT)})
    status, output = python(_PROGRAM, environment)
    if status:
        return Check(
            "a CUDA program", "failed", output, "see the monitor's log; GPUFERRY_LOG=debug shows the guest's"
        )
    return Check("a CUDA program", "ok", f"4 KiB to the device and back, with {output}")
