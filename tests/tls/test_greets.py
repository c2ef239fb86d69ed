"""Whether a GPU server with TLS answers, as a registry finds out before it sends somebody there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gpuferry.monitor.cluster.registry import redirect
from gpuferry.monitor.cluster.registry.redirect import _greets
from gpuferry.monitor.door import handshake
from gpuferry.monitor.service.tls import Identity

from tests.helpers.certificates import Certificates


@pytest.mark.parametrize(
    ("of", "scheme", "greets"),
    [
        ("ours", "tls://", True),
        ("another", "tls://", False),
        ("nobody", "tls://", False),
        ("ours", "", False),
    ],
)
def test_a_server_with_tls(
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of: str,
    scheme: str,
    greets: bool,
) -> None:
    if greets:  # however late both are
        monkeypatch.setattr(redirect, "PROBE_SECONDS", 60.0)
    ours = certificates.identity()
    identities: dict[str, Identity | None] = {"ours": ours, "nobody": None}
    if of == "another":
        identities[of] = Certificates.make(tmp_path).identity()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(handshake.greeting(bytes(32)))
        await writer.drain()
        writer.close()

    async def main() -> bool:
        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=ours.server_context())
        async with server:
            host, port = server.sockets[0].getsockname()
            return await _greets(f"{scheme}{host}:{port}", identities[of])

    assert asyncio.run(asyncio.wait_for(main(), 60)) == greets
