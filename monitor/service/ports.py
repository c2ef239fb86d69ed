"""gRPC's listening ports, with the reason where it gives none."""

from __future__ import annotations

import socket

import grpc

from ..settings.errors import ConfigError
from ..settings.monitor import resolve
from .dial import TLS
from .tls import Identity

ALONE = (("grpc.so_reuseport", 0),)  # else a second server on the port would take half of the callers


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
    return address if unix else f"{TLS if secure else ''}{address.rpartition(':')[0]}:{port}"


def _why_not(address: str) -> str:
    unix = address.startswith("unix:")
    family, bound = (socket.AF_UNIX, address[len("unix:") :]) if unix else resolve(address)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(bound)
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC does not say why"
