"""`gpuferry smi`: for eyes that know nvidia-smi; `--json` for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpuferry.specs._generated import control_pb2

from ..devices.gpus import text_of_uuid
from ..views.stats.plain import as_json, word
from .client import monitor_client
from .status import devices_of

SCHEMA = "gpuferry.smi/1"
WIDTHS = (41, 24, 22)  # of the columns, borders not counted
INNER = sum(WIDTHS) + 2
MIB = 1 << 20


def _rule(*widths: int, fill: str = "-") -> str:
    return "+" + "+".join(fill * width for width in widths) + "+"


def _pair(left: str, right: str, width: int) -> str:
    """Both ends of a cell; what does not fit on the left is cut."""
    room = width - 2
    return f" {left[: room - len(right) - 1]:<{room - len(right)}}{right} "


def _row(*cells: str) -> str:
    return "|" + "|".join(cells) + "|"


def _mib(size: int) -> str:
    return f"{size // MIB}MiB"


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}" if version else "N/A"


def _device(device: control_pb2.Device, sessions: int) -> Iterator[str]:
    used = _mib(device.memory_used) if device.HasField("memory_used") else "N/A"
    busy = f"{device.utilization:.0%}" if device.HasField("utilization") else "N/A"
    temperature = f"{device.temperature:.0f}C" if device.HasField("temperature") else "N/A"
    power = f"{device.power:.0f}W" if device.HasField("power") else "N/A"
    state = word(control_pb2.DeviceState.DESCRIPTOR, device.state).capitalize()
    yield _row(
        _pair(f"{device.ordinal:>3}  {device.name or '…'}", state, WIDTHS[0]),
        _pair("", device.pci_bus_id or "N/A", WIDTHS[1]),
        _pair("Sessions", str(sessions), WIDTHS[2]),
    )
    yield _row(
        _pair(f"     {temperature:>4}  {power:>6}", f"Granted {_mib(device.memory_granted)}", WIDTHS[0]),
        _pair("", f"{used} / {_mib(device.memory_total)}", WIDTHS[1]),
        _pair(f"{busy:>4}", f"idle {device.pool_idle}/{device.pool_size}", WIDTHS[2]),
    )


def _session(session: control_pb2.Session) -> str:
    name = session.program or "-"
    if session.function:
        name += f" ({session.function})"
    memory = f"{_mib(session.memory_mapped)} / {_mib(session.memory_quota)}"
    device = ",".join(map(str, devices_of(session))) or "-"
    left = f"{device:>3}  {session.id:>7}  {session.guest_pid:>7}  {name}"
    return _row(_pair(left, memory, INNER))


def render(reply: control_pb2.StatusReply) -> str:
    """Return the table of devices and sessions as text, laid out as nvidia-smi does."""
    versions = {device.driver_version for device in reply.devices if device.driver_version}
    cuda = f"CUDA Version: {_cuda(min(versions, default=0))}"
    lines = [
        _rule(INNER),
        _row(_pair(f"gpuferry {reply.monitor.version}    {reply.monitor.hostname}", cuda, INNER)),
        _rule(*WIDTHS),
        _row(
            _pair("GPU  Name", "State", WIDTHS[0]),
            _pair("", "Bus-Id", WIDTHS[1]),
            _pair("Sessions", "", WIDTHS[2]),
        ),
        _row(
            _pair("     Temp   Power", "Memory granted", WIDTHS[0]),
            _pair("", "Memory-Usage", WIDTHS[1]),
            _pair("GPU-Util", "API servers", WIDTHS[2]),
        ),
        _rule(*WIDTHS, fill="="),
    ]
    for device in reply.devices:
        lines += _device(
            device,
            sum(device.ordinal in devices_of(session) for session in reply.sessions),
        )
        lines.append(_rule(*WIDTHS))
    lines += ["", _rule(INNER), _row(_pair("Sessions:", "", INNER))]
    lines += [_row(_pair("GPU  Session      PID  Program", "GPU Memory", INNER)), _rule(INNER, fill="=")]
    lines += [_session(session) for session in reply.sessions] or [
        _row(_pair(" No program uses a GPU", "", INNER))
    ]
    lines.append(_rule(INNER))
    if reply.queue:
        lines.append(f"{len(reply.queue)} waiting: see `gpuferry status`")
    if reply.monitor.gpu_stats_problem:
        lines.append(f"No figures of the devices: {reply.monitor.gpu_stats_problem}")
    return "\n".join(lines)


def _json(reply: control_pb2.StatusReply) -> dict[str, Any]:
    gpus = []
    for device in reply.devices:
        uuid = text_of_uuid(device.uuid, device.instance) if device.uuid else None
        gpus.append(as_json(device) | {"uuid": uuid})
    return {"schema": SCHEMA, "gpus": gpus, "sessions": [as_json(session) for session in reply.sessions]}


def show_smi(control: str | None, token_file: str | None, json_wanted: bool, timeout: float) -> None:
    """Print the devices and their users once."""
    with monitor_client(control, token_file) as (stub, metadata):
        reply = stub.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=timeout)
    print(json.dumps(_json(reply), indent=2) if json_wanted else render(reply))
