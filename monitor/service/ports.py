"""gRPC's listening ports, with the reason where it gives none."""

from __future__ import annotations

import socket

import grpc
from gpuferry.guest.endpoint import TLS_SCHEME

from ..settings.errors import ConfigError
from ..settings.monitor import resolve
from .tls import Identity

ALONE = (("grpc.so_reuseport", 0),)  # else a second server on the port would take half of the callers


def bounded(connections: int) -> tuple[tuple[str, int], ...]:
    """Options of a gRPC server whose callers cannot make it wait or grow: at most so many connections, each
    with a bounded number of calls, proven alive while it is used, and closed when it is not.
    """
    return (
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", 32),
        ("grpc.server_handshake_timeout_ms", 5_000),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.max_connection_idle_ms", 300_000),
        ("grpc.max_connection_age_ms", 24 * 3_600_000),
        ("grpc.max_receive_message_length", 1 << 20),
        ("grpc.max_metadata_size", 16 << 10),
    )


def add_port(server: grpc.aio.Server, address: str, identity: Identity | None) -> str:
    """Bind a gRPC server to an address; TCP is TLS where there is an identity. Returns the address as
    callers name it, with the port that was bound. Raises ConfigError.
    """
    unix = address.startswith("unix:")
    secure = identity is not None and not unix
    try:
        if secure and identity:
            port = server.add_secure_port(address, identity.server_credentials())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError:
        raise ConfigError(
            f"cannot listen on {address} for control: {_why_not(address)}",
            "choose another with --control; `gpuferry doctor` may know who has this one",
        ) from None
    return address if unix else f"{TLS_SCHEME if secure else ''}{address.rpartition(':')[0]}:{port}"


def _why_not(address: str) -> str:
    unix = address.startswith("unix:")
    family, bound = (socket.AF_UNIX, address[len("unix:") :]) if unix else resolve(address)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(bound)
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC does not say why"
