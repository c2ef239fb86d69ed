"""What a tenant may have: the limits, how they are written, and which of several sources holds."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpuferry.guest.units import format_size, parse_size

from . import options

DEFAULT = "default"  # the name under which limits for tenants that have none of their own are set
NONE = options.NONE
TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # as is_tenant of tokens says, which is above this
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([smh]))?")
GPUS_OF_TIME_MOST = 1_000_000
COUNT_MOST = 1 << 53  # which a float still tells from the next
WEIGHT_LEAST, WEIGHT_MOST = 0.01, 100.0


def _count(text: str) -> float:
    return float(options.count(most=COUNT_MOST).parse(text))


def _burst(text: str) -> float:
    if not (burst := _count(text)):
        raise ValueError("0 would let no session begin: write sessions=0 for that")
    return burst


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no duration: write 90, 90s, 15m, 1h or 2d")
    if not (seconds := float(match[1]) * _SECONDS[match[2]]):  # which everybody takes for no limit
        raise ValueError(f"{text} is no time: write {NONE} for no limit; sessions=0 lets none begin")
    return seconds


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no rate: write 10/s, 30/m or 100/h")
    return float(match[1]) / _SECONDS[match[2] or "s"]


def _gpus_of_time(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number of GPUs: write 0.5, 1.5 or 2") from None
    if not 0 <= value <= GPUS_OF_TIME_MOST:
        raise ValueError(f"{text} is out of range: 0 to {GPUS_OF_TIME_MOST}")
    return value


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not WEIGHT_LEAST <= value <= WEIGHT_MOST:
        raise ValueError(f"{text} is out of range: {WEIGHT_LEAST:g} to {WEIGHT_MOST:g}")
    return value


def _shown_rate(value: float) -> str:
    return f"{value:g}/s"


def _shown_seconds(value: float) -> str:
    unit, seconds = next(pair for pair in reversed(_SECONDS.items()) if value % pair[1] == 0 or pair[1] == 1)
    return f"{value / seconds:g}{unit}"


class Kind(NamedTuple):
    """How one limit is written, and what it limits."""

    parse: Callable[[str], float]
    show: Callable[[float], str]
    metavar: str
    help: str
    finite: bool = False


_NUMBER = "{:.0f}".format
KINDS: Mapping[str, Kind] = {
    "sessions": Kind(_count, _NUMBER, "N", "Sessions at once"),
    "memory": Kind(
        lambda text: float(parse_size(text)),
        lambda value: format_size(int(value)),
        "SIZE",
        "Device memory granted at once",
    ),
    "queue": Kind(_count, _NUMBER, "N", "Places in the queue"),
    "connections": Kind(_count, _NUMBER, "N", "Programs connected at once"),
    "calls": Kind(_rate, _shown_rate, "RATE", "Calls of the control plane, as 10/s"),
    "wall": Kind(_duration, _shown_seconds, "TIME", "Life of a session, as 1h"),
    "weight": Kind(_weight, "{:g}".format, "NUMBER", "Turns in the queue against others'", finite=True),
    "processes": Kind(_count, _NUMBER, "N", "Processes with a session at once"),
    "gpus": Kind(_count, _NUMBER, "N", "GPUs at once, those of each session counted by themselves"),
    "share": Kind(
        _gpus_of_time, "{:g}".format, "GPUS", "Parts of GPUs' time that its sessions are promised, as 1.5"
    ),
    "leave": Kind(
        _count, _NUMBER, "N", "Places on a GPU server left to tenants that have no session there", finite=True
    ),
    "starts": Kind(_rate, _shown_rate, "RATE", "Sessions that begin on a GPU server, as 30/m"),
    "burst": Kind(_burst, _NUMBER, "N", "Sessions that may begin at once, where `starts` bounds them", True),
}
NAMES = tuple(KINDS)


@dataclass(frozen=True)
class Limits:
    """What one tenant may have at once. None: not said here; infinity: as much as there is.

    `sessions` and `memory` (bytes of device memory) granted at once, `queue` places, `connections` of guests,
    `calls` of the control plane a second, `wall` seconds of a session, `weight` of its turns in the queue,
    `processes` that have a session, those that share one's lease included, `gpus` of its sessions (one that
    several sessions have counts with each), `share` of GPUs' time promised to them, in GPUs, `leave` places
    of a GPU server to tenants that have no session there, `starts` of sessions on a GPU server a second,
    `burst` of these at once.
    """

    sessions: float | None = None
    memory: float | None = None
    queue: float | None = None
    connections: float | None = None
    calls: float | None = None
    wall: float | None = None
    weight: float | None = None
    processes: float | None = None
    leave: float | None = None
    gpus: float | None = None
    share: float | None = None
    starts: float | None = None
    burst: float | None = None

    def over(self, other: Limits) -> Limits:
        """These limits, and the other's where these say nothing."""
        mine = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(other, **mine)

    def shown(self) -> dict[str, str]:
        """The limits that are said here, by name, as they are written."""
        return {
            name: NONE if value == math.inf else KINDS[name].show(value)
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        }


UNLIMITED = Limits(**dict.fromkeys(KINDS, math.inf) | {"weight": 1, "leave": 0})
# Of a tenant for which nobody has said anything: it cannot take all places, fill the queue, nor keep the
# control plane busy, or the machine with starting API servers.
BUILT_IN = dataclasses.replace(UNLIMITED, queue=1000, calls=50, leave=1, starts=50, burst=1000)


def parse_limits(texts: Mapping[str, str]) -> Limits:
    """The limits that these texts by name mean; `none` is no limit. ValueError says which is wrong, and
    why.
    """
    found: dict[str, float] = {}
    for name, text in texts.items():
        if name not in KINDS:
            raise ValueError(f"{name!r} is no limit of a tenant: known are {', '.join(NAMES)}")
        try:
            kind = KINDS[name]
            found[name] = math.inf if text == NONE and not kind.finite else kind.parse(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return Limits(**found)


def _split(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _, value in [part.partition("=") for part in text.split(":") if part]:
        if name.strip() in found:
            raise ValueError(f"{name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


def tenants() -> options.Kind:
    """A kind of setting: limits by tenant, `acme=sessions=4:memory=8GiB`, or tables in a file."""
    kind = options.mapping("NAME=LIMIT=VALUE:…")

    def parse(value: str) -> Mapping[str, str]:
        found: Mapping[str, str] = kind.parse(value)
        limits_of(found)
        return found

    return dataclasses.replace(kind, parse=parse)


def limits_of(setting: Mapping[str, str]) -> dict[str, Limits]:
    """The limits by tenant that such a setting means. ValueError names the tenant whose limits are wrong."""
    found = {}
    for name, text in setting.items():
        if not TENANT.fullmatch(name):
            raise ValueError(f"{name!r} is no tenant's name: lower-case letters, digits, - and _, at most 63")
        try:
            found[name] = parse_limits(_split(text))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found
