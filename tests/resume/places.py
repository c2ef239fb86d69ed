"""Two GPU servers, each behind something that cuts connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.helpers.tokens import token_of
from tests.monitor import harness

from .frame_cutter import FrameCutter

TOKEN = token_of("both of them")
OPTIONS = ("--pool", "1", "--resume-grace", "60")


@dataclass(frozen=True)
class Site:
    """A monitor and what stands before it."""

    monitor: harness.Monitor
    cutter: FrameCutter
    devices: int

    def at_rest(self) -> None:
        """No session, and every device as it was."""
        # A keeper is told of the end of its session after the API servers.
        self.monitor.wait_for(
            lambda s: (
                not s.sessions
                and [(one.pool_idle, one.memory_granted) for one in s.devices] == [(1, 0)] * self.devices
            ),
            "rest",
        )


P = TypeVar("P", bound=Site)


@contextlib.contextmanager
def two_places(kind: type[P], devices: int, **settings: str) -> Iterator[tuple[P, P]]:
    """With so many devices each, of 256 MiB, and one API server on each."""
    changes: dict[str, Any] = {
        "GPUFERRY_SIM_DEVICES": str(devices),
        "GPUFERRY_SIM_MEMORY": "256MiB",
        "GPUFERRY_TOKEN": TOKEN,
        **settings,
    }
    with (
        harness.monitor(*OPTIONS, server=None, **changes) as here,
        harness.monitor(*OPTIONS, server=None, **changes) as there,
        FrameCutter(here.tcp) as near,
        FrameCutter(there.tcp) as far,
    ):
        yield kind(here, near, devices), kind(there, far, devices)
