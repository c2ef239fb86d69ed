"""What TLS costs: the same calls and copies over a clear and a secured connection to two monitors alike."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuferry.monitor.service import authority

from tests.helpers.monitor import monitor
from tests.helpers.running import guest_environment

from . import openssl
from .probe import measured, probe
from .rows import Row, cost, rate

TURNS = 5  # one after the other, so that what else this machine does meets both


def rows() -> list[Row]:
    """Calls and copies over TLS, whose floor is the clear connection; with an OpenSSL of today, and with the
    machine's own, on which it depends how much is left.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = _certificates(Path(folder))
        return [*_rows(flags, "tls", openssl.fast()), *_rows(flags, "tls_own", None)]


def _rows(flags: list[str], prefix: str, libraries: Path | None) -> Iterator[Row]:
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
            (
                measured(clear.run(command, extra=extra)),
                measured(secure.run(command, extra=extra)),
            )
            for _ in range(TURNS)
        ]

    def best(name: str) -> tuple[float, float]:
        """Return the least of all turns, over TLS and without."""
        return min(pair[1][name] for pair in pairs), min(pair[0][name] for pair in pairs)

    def bandwidth(name: str) -> tuple[float, float]:
        secured, plain = best(name)
        gigabytes = pairs[0][0]["copy_bytes"] / 1e9
        return gigabytes / secured, gigabytes / plain

    secured, plain = best("sync_call")
    yield cost(f"{prefix}_sync_call", secured * 1e6, plain * 1e6, "µs")
    yield rate(f"{prefix}_h2d", *bandwidth("h2d"), "GB/s")
    yield rate(f"{prefix}_d2h", *bandwidth("d2h"), "GB/s")


def _certificates(folder: Path) -> list[str]:
    authority.make_authority(folder)
    authority.issue(folder, "server", ["localhost", "127.0.0.1"])
    return [
        f"--tls-cert={folder / 'server.crt'}",
        f"--tls-key={folder / 'server.key'}",
        f"--tls-ca={folder / 'ca.crt'}",
    ]
