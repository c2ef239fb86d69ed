"""From an etcd cluster's settings to how it is reached. Apart from them: every verb reads settings, and what
this needs takes longer to import than most verbs take.
"""

from __future__ import annotations

from pathlib import Path

from gpuferry.guest.endpoint import read_token

from ..service.logs import hide
from ..service.tls import check_private
from ..settings.errors import ConfigError
from .etcd_access import Access
from .settings import EtcdOptions


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
