"""What TLS costs: the same calls and copies over a clear and a secured connection to two monitors alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from gpuferry.monitor.service import authority

from tests.helpers.monitor import monitor
from tests.helpers.running import guest_environment

from . import openssl
from .probe import measured, probe
from .rows import Row, cost, rate

TURNS = 5  # one after the other, so that what else this machine does meets both


class Costs(NamedTuple):
    """Of a call in microseconds, of copies in GB/s: over TLS, and in the clear."""

    call: tuple[float, float]
    h2d: tuple[float, float]
    d2h: tuple[float, float]


def rows() -> list[Row]:
    """Calls and copies over TLS, whose floor is the clear connection; with an OpenSSL of today, and with the
    machine's own, on which it depends how much is left.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = _certificates(Path(folder))
        today, own = _costs(flags, openssl.fast()), _costs(flags, None)
    return [
        cost("tls_sync_call", *today.call, "µs"),
        rate("tls_h2d", *today.h2d, "GB/s"),
        rate("tls_d2h", *today.d2h, "GB/s"),
        cost("tls_own_sync_call", *own.call, "µs"),
        rate("tls_own_h2d", *own.h2d, "GB/s"),
        rate("tls_own_d2h", *own.d2h, "GB/s"),
    ]


def _costs(flags: list[str], libraries: Path | None) -> Costs:
    """Where both ends find OpenSSL in this folder; None: where the machine has it."""
    of_guest = guest_environment({})["LD_LIBRARY_PATH"]
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    extra = {"LD_LIBRARY_PATH": f"{of_guest}:{libraries}"} if libraries else {}
    command = probe("sync_call", "h2d", "d2h")
    with (
        monitor("--pool", "1", "--log-level", "warning", environment=environment) as clear,
        monitor("--pool", "1", "--log-level", "warning", *flags, environment=environment) as secure,
    ):
        pairs = [
            (measured(secure.run(command, extra=extra)), measured(clear.run(command, extra=extra)))
            for _ in range(TURNS)
        ]

    def best(name: str) -> tuple[float, float]:
        """Return the least of all turns, over TLS and without."""
        return min(pair[0][name] for pair in pairs), min(pair[1][name] for pair in pairs)

    def bandwidth(name: str) -> tuple[float, float]:
        secured, plain = best(name)
        gigabytes = pairs[0][0]["copy_bytes"] / 1e9
        return gigabytes / secured, gigabytes / plain

    secured, plain = best("sync_call")
    return Costs((secured * 1e6, plain * 1e6), bandwidth("h2d"), bandwidth("d2h"))


def _certificates(folder: Path) -> list[str]:
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    return [
        f"--tls-cert={folder / 'server.crt'}",
        f"--tls-key={folder / 'server.key'}",
        f"--tls-ca={folder / 'ca.crt'}",
    ]
