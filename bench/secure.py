"""What TLS costs: the same calls and copies over a clear and a secured connection to two monitors alike."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpuferry.monitor.service import authority

from tests.helpers.monitor import monitor

from .probe import measured, probe
from .rows import Row, cost, rate

TURNS = 5  # one after the other, so that what else this machine does meets both


def rows() -> list[Row]:
    """Calls and copies over TLS, whose floor is the clear connection."""
    command = probe("sync_call", "h2d", "d2h")
    with tempfile.TemporaryDirectory() as folder:
        flags = _certificates(Path(folder))
        with (
            monitor("--pool", "1", "--log-level", "warning") as clear,
            monitor("--pool", "1", "--log-level", "warning", *flags) as secure,
        ):
            pairs = [(measured(clear.run(command)), measured(secure.run(command))) for _ in range(TURNS)]

    def best(name: str) -> tuple[float, float]:
        """Return the least of all turns, over TLS and without."""
        return min(pair[1][name] for pair in pairs), min(pair[0][name] for pair in pairs)

    def bandwidth(name: str) -> tuple[float, float]:
        secured, plain = best(name)
        gigabytes = pairs[0][0]["copy_bytes"] / 1e9
        return gigabytes / secured, gigabytes / plain

    secured, plain = best("sync_call")
    return [
        cost("tls_sync_call", secured * 1e6, plain * 1e6, "µs"),
        rate("tls_h2d", *bandwidth("h2d"), "GB/s"),
        rate("tls_d2h", *bandwidth("d2h"), "GB/s"),
    ]


def _certificates(folder: Path) -> list[str]:
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    return [
        f"--tls-cert={folder / 'server.crt'}",
        f"--tls-key={folder / 'server.key'}",
        f"--tls-ca={folder / 'ca.crt'}",
    ]
