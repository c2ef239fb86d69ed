"""Who may have how many of the process's descriptors, so that nobody's connections keep others out."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from ..settings.errors import ConfigError

LEAST = 128
OWN_MOST = 4096
HTTP_MOST, CONTROL_MOST = 256, 256
SHAKING_MOST, WAITING_MOST = 1024, 8192


@dataclass(frozen=True)
class Shares:
    """Descriptors for each purpose; what is left is the monitor's own: API servers, files, logs."""

    http: int  # connections of pages, probes and scrapers
    control: int  # connections of gRPC, of three descriptors each: the front's two, and the server's
    shaking: int  # handshakes with guests at once, of one listener
    waiting: int  # guests in the queue


def raise_limit() -> None:
    """Let this process have as many descriptors as it may. Raises ConfigError if no daemon can live with
    those.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < LEAST:
        raise ConfigError(
            f"this process may have {hard} descriptors: {LEAST} at least are wanted",
            "see `ulimit -Hn`; of a systemd unit it is LimitNOFILE",
        )
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(limit: int | None = None) -> Shares:
    """The shares of a process that may have so many descriptors; None: of this one."""
    if limit is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = limit - min(limit // 4, OWN_MOST)
    http, control = min(others // 8, HTTP_MOST), min(others // 24, CONTROL_MOST)
    shaking = min(others // 8, SHAKING_MOST)
    # Two listeners, and as many last words to guests that are refused.
    waiting = min(others - http - 3 * control - 3 * shaking, WAITING_MOST)
    return Shares(http, control, shaking, max(waiting, 1))
