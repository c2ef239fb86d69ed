"""Where the page is served. Apart from server.py, because importing aiohttp takes a tenth of a second."""

from __future__ import annotations

import socket

from ...door.listener import listen_tcp
from ...settings.errors import ConfigError
from ...settings.monitor_options import AUTO, DEFAULT_HTTP


def listen_http(address: str) -> socket.socket:
    """A listening socket for HOST:PORT; `auto`: the usual port, or any free one if another monitor has it."""
    if address != AUTO:
        return listen_tcp(address, "--http")
    try:
        return listen_tcp(DEFAULT_HTTP)
    except ConfigError:
        host = DEFAULT_HTTP.rpartition(":")[0]
        return listen_tcp(f"{host}:0")
