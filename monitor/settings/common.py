"""Settings that every service has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .options import choice, option, optional, path, switch


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """Encryption."""

    tls_cert: str | None = option(
        optional(path()), None, "Certificate that this service shows", "GPUFERRY_TLS_CERT"
    )
    tls_key: str | None = option(
        optional(path()), None, "Private key of the certificate, mode 0600", "GPUFERRY_TLS_KEY"
    )
    tls_ca: str | None = option(
        optional(path()), None, "Certificate of the authority that is believed", "GPUFERRY_TLS_CA"
    )
    insecure: bool = option(switch(), False, "Reach beyond this machine without TLS", "GPUFERRY_INSECURE")


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Logs."""

    log_level: str = option(
        choice("debug", "info", "warning", "error"), "info", "What is logged", "GPUFERRY_LOG_LEVEL"
    )
    log_format: str = option(
        choice("auto", "json", "text"),
        "auto",
        "auto: text on a terminal, else JSON lines",
        "GPUFERRY_LOG_FORMAT",
    )


def published_identity(published: Mapping[str, str]) -> Encryption:
    """The TLS files that a service of this machine published beside its address."""
    certificate, key, authority = (published.get(f"GPUFERRY_TLS_{name}") for name in ("CERT", "KEY", "CA"))
    return Encryption(tls_cert=certificate, tls_key=key, tls_ca=authority)
