"""What TLS costs: the same calls and copies over a clear and a secured connection to two monitors alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from gpuferry.monitor.service import authority

from tests.helpers import toolchain
from tests.helpers.monitor import Monitor, monitor
from tests.helpers.paths import ROOT

from .rows import Row, cost, rate

TURNS = 5  # one after the other, so that what else this machine does meets both


def rows(measured: Callable[[Monitor, Path], dict[str, float]]) -> list[Row]:
    """Rows whose floor is the clear connection. `measured` runs the probe through a monitor."""
    probe = toolchain.program(ROOT / "bench" / "micro" / "probe.c")
    with tempfile.TemporaryDirectory() as folder:
        flags = _certificates(Path(folder))
        with (
            monitor("--pool", "1", "--log-level", "warning") as clear,
            monitor("--pool", "1", "--log-level", "warning", *flags) as secure,
        ):
            pairs = [(measured(clear, probe), measured(secure, probe)) for _ in range(TURNS)]

    def best(name: str, secured: bool) -> float:
        return min(pair[secured][name] for pair in pairs)

    gigabytes = pairs[0][0]["copy_bytes"] / 1e9
    return [
        cost("tls_sync_call", best("sync_call", True) * 1e6, best("sync_call", False) * 1e6, "µs"),
        *(
            rate(f"tls_{name}", gigabytes / best(name, True), gigabytes / best(name, False), "GB/s")
            for name in ("h2d", "d2h")
        ),
    ]


def _certificates(folder: Path) -> list[str]:
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    return [
        f"--tls-cert={folder / 'server.crt'}",
        f"--tls-key={folder / 'server.key'}",
        f"--tls-ca={folder / 'ca.crt'}",
    ]
