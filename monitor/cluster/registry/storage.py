"""The registry's store, opened as its settings say."""

from __future__ import annotations

from pathlib import Path

from gpuferry.guest.endpoint import read_token

from ...service.logs import hide
from ...service.tls import check_private
from ...settings.errors import ConfigError
from ...settings.folders import store_path
from ...store.choose import open_store
from ...store.etcd_access import Access
from ...store.interface import Store
from .config import RegistryOptions


def store_of(config: RegistryOptions) -> Store:
    """Open the store. Raises ConfigError, or StoreError."""
    return open_store(config.store, store_path(config.state), access_of(config), config.insecure)


def access_of(config: RegistryOptions) -> Access:
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
