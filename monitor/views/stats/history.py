"""The last minutes of every device, for the charts: one point per second, the oldest dropped."""

from __future__ import annotations

from collections import deque
from typing import Any

from gpuferry.specs._generated import control_pb2

POINTS = 600


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
                names = ("memory_used", "memory_granted", "utilization")
                series = {name: deque([None] * known, maxlen=POINTS) for name in names}
                self._devices[device.ordinal] = series
            for name, values in series.items():
                absent = name != "memory_granted" and not device.HasField(name)
                values.append(None if absent else getattr(device, name))

    def latest(self) -> dict[str, Any]:
        """The newest point, as JSON knows it."""
        return {
            "time": self._times[-1],
            "devices": {
                str(ordinal): {name: values[-1] for name, values in series.items()}
                for ordinal, series in self._devices.items()
            },
        }

    def all(self) -> dict[str, Any]:
        """All points that are kept, as JSON knows them."""
        return {
            "times": list(self._times),
            "devices": {
                str(ordinal): {name: list(values) for name, values in series.items()}
                for ordinal, series in self._devices.items()
            },
        }
