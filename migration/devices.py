"""Whether a session of one device can go on on another: its guest keeps what WELCOME told it of the first."""

from __future__ import annotations

from dataclasses import dataclass

from gpuferry.specs._generated.frames import Device, DeviceLink, Welcome

from .abc import Movable
from .errors import LinkBroken, Refused
from .frames import PAGE

# Where the device sits, and its name in the bus: nothing that a program computes with.
PLACES = {
    33: "PCI bus",
    34: "PCI device",
    50: "PCI domain",
    85: "board group",
    131: "NUMA node",
    134: "host NUMA node",
    140: "PCI subsystem",
}


@dataclass(frozen=True)
class Terms:
    """What a guest knows of its session and its device."""

    session: int
    window: tuple[int, int]
    quota: int
    granularity: int
    driver_version: int
    devices: tuple[Device, ...]
    links: tuple[DeviceLink, ...]  # from each to each, where they are several


def of_welcome(body: bytes) -> Terms:
    """The Terms in the body of a WELCOME."""
    if len(body) < Welcome.SIZE:
        raise LinkBroken("the destination's WELCOME is cut short")
    said = Welcome.unpack(body)
    count = said.device_count
    links = count * count if count > 1 else 0
    behind = Welcome.SIZE + count * Device.SIZE
    if count < 1 or len(body) < behind + links * DeviceLink.SIZE:
        raise LinkBroken("the destination's WELCOME is cut short")
    return Terms(
        said.session,
        (said.window_base, said.window_size),
        said.quota,
        said.granularity,
        said.driver_version,
        tuple([Device.unpack(body, Welcome.SIZE + i * Device.SIZE) for i in range(count)]),
        tuple([DeviceLink.unpack(body, behind + i * DeviceLink.SIZE) for i in range(links)]),
    )


def welcome(core: Movable, session: int) -> bytes:
    """The body of a WELCOME as the session's guest got it."""
    base, size = core.window
    quota = core.stats()["memory_quota"]
    count = len(core.devices)
    told = Welcome(b"", session, base, size, quota, PAGE, core.driver_version, count, 0, 0, 0)
    return told.pack() + b"".join(core.devices) + core.links


def compare(here: Terms, there: Terms) -> None:
    """Raise Refused if a program could tell the devices there from those here."""
    _compare(
        ("address window", here.window, there.window),
        ("memory granularity", here.granularity, there.granularity),
        ("driver version", here.driver_version, there.driver_version),
        ("number of devices", len(here.devices), len(there.devices)),
    )
    for one, other in zip(here.devices, there.devices, strict=True):
        _compare_devices(one, other)
    for way, back in zip(here.links, there.links, strict=True):
        _compare(
            ("peer access between its devices", way.can_access, back.can_access),
            ("peer attributes of its devices", way.attributes, back.attributes),
        )
    if there.quota < here.quota:
        raise Refused(
            f"the destination grants {there.quota >> 20} MiB, the session may use {here.quota >> 20} MiB"
        )


def _compare(*facts: tuple[str, object, object]) -> None:
    for what, ours, theirs in facts:
        if ours != theirs:
            raise Refused(f"the destination has another {what}: {_text(theirs)}, here {_text(ours)}")


def _compare_devices(here: Device, there: Device) -> None:
    _compare(
        ("device", _name(here), _name(there)),
        ("range of stream priorities", _priorities(here), _priorities(there)),
    )
    for i, (ours, theirs) in enumerate(zip(here.attributes, there.attributes, strict=True)):
        if ours != theirs and i not in PLACES:
            raise Refused(f"device attribute {i} is {theirs} at the destination and {ours} here")
    for i, (ours, theirs) in enumerate(zip(here.limits, there.limits, strict=True)):
        if ours != theirs:
            raise Refused(f"limit {i} of the device is {theirs} at the destination and {ours} here")


def _name(device: Device) -> str:
    return device.name.partition(b"\0")[0].decode(errors="replace")


def _priorities(device: Device) -> tuple[int, int]:
    return device.stream_priority_least, device.stream_priority_greatest


def _text(value: object) -> str:
    return "+".join(f"{each:#x}" for each in value) if isinstance(value, tuple) else str(value)
