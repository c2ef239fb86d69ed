"""Whether a session of one device can go on on another: its guest keeps what WELCOME told it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .abc import Movable
from .errors import LinkBroken, Refused
from .frames import PAGE

WELCOME = struct.Struct("<32s4Q6I")
DEVICE = struct.Struct("<256s16sQiiI256i8q")
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
    """What a guest knows of its session and device."""

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
    """By the body of a WELCOME."""
    if len(body) < WELCOME.size + DEVICE.size:
        raise LinkBroken("the destination's WELCOME is cut short")
    _, session, base, size, quota, granularity, driver, *_ = WELCOME.unpack_from(body)
    name, _, _, least, greatest, _, *numbers = DEVICE.unpack_from(body, WELCOME.size)
    return Terms(
        session,
        (base, size),
        quota,
        granularity,
        driver,
        name.rstrip(b"\0").decode(errors="replace"),
        (least, greatest),
        tuple(numbers[:256]),
        tuple(numbers[256:]),
    )


def welcome(core: Movable, session: int) -> bytes:
    """What the guest of a session was told, as a body of WELCOME."""
    base, size = core.window
    quota = core.stats()["memory_quota"]
    return WELCOME.pack(b"", session, base, size, quota, PAGE, core.driver_version, 1, 0, 0, 0) + core.device


def compare(here: Terms, there: Terms) -> None:
    """Raises if a program could tell the difference."""
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
