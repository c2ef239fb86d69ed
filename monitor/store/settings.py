"""How an etcd cluster is named in settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gpuferry.guest.endpoint import read_token

from ..service.logs import hide
from ..service.tls import check_private
from ..settings import options
from ..settings.errors import ConfigError
from ..settings.options import option
from .etcd_access import Access

DEFAULT_PREFIX = "/gpuferry/"
_NAME = re.compile(r"sqlite|etcd:[^,\s]+(,[^,\s]+)*")


def store_name(text: str) -> str:
    """The name of a store. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError("write sqlite, or etcd:HOST:PORT,HOST:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """How a daemon that keeps its state in etcd reaches it: certificates, user and prefix."""

    etcd_ca: str | None = option(
        options.optional(options.path()), None, "Certificate of etcd's authority; none: no TLS towards etcd"
    )
    etcd_cert: str | None = option(
        options.optional(options.path()), None, "Certificate that is shown to etcd, if it asks for one"
    )
    etcd_key: str | None = option(
        options.optional(options.path()), None, "Private key of that certificate, mode 0600"
    )
    etcd_user: str | None = option(
        options.optional(options.text("NAME")), None, "Who etcd knows this service as; none: nobody"
    )
    etcd_password_file: str | None = option(
        options.optional(options.path()), None, "The user's password, mode 0600"
    )
    etcd_prefix: str = option(options.text("PREFIX"), DEFAULT_PREFIX, "What all keys in etcd begin with")


def access_of(config: EtcdOptions) -> Access:
    """How etcd is reached. Raises ConfigError."""
    if bool(config.etcd_cert) != bool(config.etcd_key) or (config.etcd_cert and not config.etcd_ca):
        raise ConfigError("--etcd-cert and --etcd-key go together, and with --etcd-ca")
    if bool(config.etcd_user) != bool(config.etcd_password_file):
        raise ConfigError("--etcd-user and --etcd-password-file go together")
    password = ""
    if config.etcd_password_file:
        try:
            password = read_token(config.etcd_password_file)
        except OSError as error:
            raise ConfigError(f"{config.etcd_password_file}: {error.strerror}") from None
        hide(password)
    ca, certificate, key = (
        Path(path) if path else None for path in (config.etcd_ca, config.etcd_cert, config.etcd_key)
    )
    if key:
        check_private(key)
    return Access(config.etcd_prefix, ca, certificate, key, config.etcd_user or "", password)
