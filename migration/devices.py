"""Whether a session of one device can go on on another: its guest keeps what WELCOME told it of the first."""

from __future__ import annotations

from dataclasses import dataclass

from gpuferry.specs._generated.frames import Device, Welcome

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
    name: str
    priorities: tuple[int, int]
    attributes: tuple[int, ...]
    limits: tuple[int, ...]


def of_welcome(body: bytes) -> Terms:
    """The Terms in the body of a WELCOME."""
    if len(body) < Welcome.SIZE + Device.SIZE:
        raise LinkBroken("the destination's WELCOME is cut short")
    said, device = Welcome.unpack(body), Device.unpack(body, Welcome.SIZE)
    return Terms(
        said.session,
        (said.window_base, said.window_size),
        said.quota,
        said.granularity,
        said.driver_version,
        device.name.rstrip(b"\0").decode(errors="replace"),
        (device.stream_priority_least, device.stream_priority_greatest),
        device.attributes,
        device.limits,
    )


def welcome(core: Movable, session: int) -> bytes:
    """The body of a WELCOME as the session's guest got it."""
    base, size = core.window
    quota = core.stats()["memory_quota"]
    told = Welcome(b"", session, base, size, quota, PAGE, core.driver_version, 1, 0, 0, 0)
    return told.pack() + core.device


def compare(here: Terms, there: Terms) -> None:
    """Raise Refused if a program could tell the one device from the other."""
    for what, ours, theirs in (
        ("device", here.name, there.name),
        ("address window", here.window, there.window),
        ("memory granularity", here.granularity, there.granularity),
        ("driver version", here.driver_version, there.driver_version),
        ("range of stream priorities", here.priorities, there.priorities),
    ):
        if ours != theirs:
            raise Refused(f"the destination has another {what}: {_text(theirs)}, here {_text(ours)}")
    for i, (ours, theirs) in enumerate(zip(here.attributes, there.attributes, strict=True)):
        if ours != theirs and i not in PLACES:
            raise Refused(f"device attribute {i} is {theirs} at the destination and {ours} here")
    for i, (ours, theirs) in enumerate(zip(here.limits, there.limits, strict=True)):
        if ours != theirs:
            raise Refused(f"limit {i} of the device is {theirs} at the destination and {ours} here")
    if there.quota < here.quota:
        raise Refused(
            f"the destination grants {there.quota >> 20} MiB, the session may use {here.quota >> 20} MiB"
        )


def _text(value: object) -> str:
    return "+".join(f"{each:#x}" for each in value) if isinstance(value, tuple) else str(value)
