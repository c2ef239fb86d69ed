"""The last minutes of every device, for the charts: one point per second, the oldest dropped."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

from gpuferry.specs._generated import control_pb2

POINTS = 600
ALWAYS = ("memory_granted", "memory_resident", "memory_in_host", "memory_on_disk")
MEASURED = ("memory_used", "utilization")
SHARES = "shares"  # of sessions: numbers and thousandths, by turns


class History:
    """Parallel series of each device's figures; None where nothing is known of a moment."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=POINTS)
        self._devices: dict[int, dict[str, deque[Any]]] = {}

    def add(self, at: float, devices: list[control_pb2.Device]) -> None:
        """Remember the devices' figures of one moment; `at` is a Unix time."""
        known = len(self._times)
        self._times.append(at)
        for device in devices:
            series = self._devices.get(device.ordinal)
            if series is None:
                names = (*ALWAYS, *MEASURED, SHARES)
                series = {name: deque([None] * known, maxlen=POINTS) for name in names}
                self._devices[device.ordinal] = series
            for name in ALWAYS:
                series[name].append(getattr(device, name))
            for name in MEASURED:
                series[name].append(getattr(device, name) if device.HasField(name) else None)
            series[SHARES].append(_shares(device))

    def latest(self) -> dict[str, Any]:
        """The newest point, as JSON knows it."""
        return {
            "time": self._times[-1],
            "devices": {
                str(ordinal): {name: _plain(values[-1]) for name, values in series.items()}
                for ordinal, series in self._devices.items()
            },
        }

    def all(self) -> dict[str, Any]:
        """All points that are kept, as JSON knows them."""
        return {
            "times": list(self._times),
            "devices": {
                str(ordinal): {name: list(map(_plain, values)) for name, values in series.items()}
                for ordinal, series in self._devices.items()
            },
        }


def _shares(device: control_pb2.Device) -> array[int] | None:
    """In few bytes, because there are as many as points."""
    if not device.HasField("turns"):
        return None
    return array(
        "Q", [part for one in device.turns.shares for part in (one.session, round(1000 * one.share))]
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, array) else value
