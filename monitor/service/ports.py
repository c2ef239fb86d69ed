"""gRPC's listening ports, with the reason where it gives none."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc

from ..settings.errors import ConfigError
from .acceptor import make_way
from .front import Front
from .tls import Identity

INSIDE = "control.in"  # where a front hands on what it takes


def bounded(connections: int) -> tuple[tuple[str, int], ...]:
    """Options of a gRPC server whose callers cannot make it wait or grow: at most so many connections, each
    with a bounded number of calls, proven alive while it is used, and closed when it is not. A front keeps to
    that number; of those that had to go, the server may hear later than of those that came instead.
    """
    return (
        ("grpc.max_allowed_incoming_connections", connections * 2),
        ("grpc.max_concurrent_streams", 32),
        ("grpc.server_handshake_timeout_ms", 5_000),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.max_connection_idle_ms", 300_000),
        ("grpc.max_connection_age_ms", 24 * 3_600_000),
        ("grpc.max_receive_message_length", 1 << 20),
        ("grpc.max_metadata_size", 16 << 10),
    )


def add_port(server: grpc.aio.Server, path: Path) -> None:
    """Bind a gRPC server to a Unix socket. Raises ConfigError."""
    try:
        make_way(path)
        server.add_insecure_port(f"unix:{path}")
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else _why_not(path)
        raise ConfigError(
            f"cannot listen on unix:{path} for control: {why}",
            "choose another with --control; `gpuferry doctor` may know who has this one",
        ) from None


def add_front(
    server: grpc.aio.Server,
    listening: socket.socket,
    folder: Path,
    identity: Identity | None,
    connections: int,
) -> Front:
    """Bind a gRPC server to a TCP socket, by way of one of its own in this folder, which must be nobody
    else's. It is TLS where there is an identity. Once the server has started, open what is returned.
    """
    inside = folder / INSIDE
    inside.unlink(missing_ok=True)
    if identity:
        server.add_secure_port(f"unix:{inside}", identity.server_credentials())
    else:
        server.add_insecure_port(f"unix:{inside}")
    return Front(listening, inside, connections)


def _why_not(path: Path) -> str:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.bind(str(path))
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC does not say why"
