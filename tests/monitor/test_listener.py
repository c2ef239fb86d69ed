"""What a guest's connection brings along when it is handed to an API server."""

from __future__ import annotations

import socket

from gpuferry.monitor.door.listener import listen_tcp


def test_connections_inherit_what_was_set_on_the_listening_socket() -> None:
    with listen_tcp("127.0.0.1:0") as listening:
        with socket.create_connection(listening.getsockname()):
            listening.setblocking(True)
            connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            assert connection.getblocking()
