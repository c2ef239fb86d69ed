"""gRPC channels: `tls://HOST:PORT` over TLS, all else in the clear, which may not leave this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
from gpuferry.guest.endpoint import TLS_SCHEME, split_address

from ..settings.errors import ConfigError

if TYPE_CHECKING:
    from .tls import Identity

Options = Sequence[tuple[str, Any]]
# An account of 92 days of a thousand tenants is longer than the 4 MiB that gRPC takes; so is what a registry
# knows of many servers.
LONG_ANSWERS: Options = (("grpc.max_receive_message_length", 64 << 20),)


# What gRPC's words mean. They may be somebody else's, and are not passed on.
_REASONS = (
    ("Hostname Verification", "its certificate is for another name or address than this"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not of the authority in GPUFERRY_TLS_CA, or has ended"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    (  # the port of guests, of the page, or of another program
        "Failed parsing HTTP/2",
        "what listens there speaks no gRPC, or only TLS (tls://): commands go to the address of --control",
    ),
    ("Domain name not found", "no such host is known here"),
    ("Permission denied", "this user may not connect to it"),
    ("tokens cannot be checked", "it cannot look tokens up now: try again later"),
    ("Socket closed", "it hung up; if it speaks TLS, write tls:// before its address"),
)


def why_unreachable(code: grpc.StatusCode, details: str | None) -> str:
    """Why a call found nobody, in our words."""
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return "no answer in time"
    found = (reason for words, reason in _REASONS if words in (details or ""))
    return next(found, "nothing listens there")


def host_of(address: str) -> str:
    """The host of HOST:PORT or [IPV6]:PORT."""
    return address.rpartition(":")[0].strip("[]")


def stays_here(address: str) -> bool:
    """Whether what is said to HOST:PORT or unix:PATH does not leave this machine. A name is not looked up."""
    if address.startswith("unix:"):
        return True
    host = host_of(address)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_way(address: str, identity: Identity | None, insecure: bool) -> bool:
    """Whether the way to this address is TLS. Raises ConfigError if it is none, or not allowed."""
    try:
        split_address(address)
    except ValueError as error:
        raise ConfigError(str(error), "as in gpu-server:7701") from None
    if address.startswith(TLS_SCHEME):
        if identity is None:
            raise ConfigError(
                f"{address} wants a certificate, and none is known here",
                "set GPUFERRY_TLS_CERT, GPUFERRY_TLS_KEY and GPUFERRY_TLS_CA: see `gpuferry tls issue`",
            )
        return True
    if not (stays_here(address) or insecure):
        raise ConfigError(
            f"{address} is another machine, and would be spoken to in the clear",
            f"write {TLS_SCHEME}{address} if it has a certificate; "
            "GPUFERRY_INSECURE=true (--insecure) does without",
        )
    return False


def dial(
    address: str, identity: Identity | None, insecure: bool = False, options: Options = ()
) -> grpc.Channel:
    """A channel for who may wait. Raises ConfigError."""
    options = (*LONG_ANSWERS, *options)
    if check_way(address, identity, insecure) and identity:
        target, credentials = address.removeprefix(TLS_SCHEME), identity.channel_credentials()
        return grpc.secure_channel(target, credentials, options=options)
    return grpc.insecure_channel(address, options=options)


def dial_async(
    address: str, identity: Identity | None, insecure: bool = False, options: Options = ()
) -> grpc.aio.Channel:
    """A channel for a daemon. Raises ConfigError."""
    options = (*LONG_ANSWERS, *options)
    if check_way(address, identity, insecure) and identity:
        target, credentials = address.removeprefix(TLS_SCHEME), identity.channel_credentials()
        return grpc.aio.secure_channel(target, credentials, options=options)
    return grpc.aio.insecure_channel(address, options=options)
