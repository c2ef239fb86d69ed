"""How an etcd cluster is named in settings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..settings import options
from ..settings.options import option

DEFAULT_PREFIX = "/gpuferry/"
_NAME = re.compile(r"sqlite|etcd:[^,\s]+(,[^,\s]+)*")


def store_name(text: str) -> str:
    """The name of a store. Raises ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError("write sqlite, or etcd:HOST:PORT,HOST:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """An etcd that it keeps its state in."""

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
