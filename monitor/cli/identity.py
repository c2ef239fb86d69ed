"""What the CLI proves itself with over TLS: what the environment names, else what a daemon here published."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuferry.guest.endpoint import TLS_SCHEME

from ..settings.common import Encryption, published_identity
from ..settings.sources import load

if TYPE_CHECKING:
    from ..service.tls import Identity


def _chosen(published: Mapping[str, str]) -> Encryption:
    given = load(Encryption, "cli", config=os.devnull).values
    if given.tls_cert or given.tls_key or "GPUFERRY_TLS_CERT" not in published:
        return given
    return replace(published_identity(published), insecure=given.insecure)


def identity_for(addresses: Iterable[str], published: Mapping[str, str]) -> Identity | None:
    """GPUFERRY_TLS_CERT, _KEY and _CA, else those of a daemon of this machine, as it published them; None:
    there is none, or none of the addresses is spoken to over TLS. Then nobody looks at the files: where a
    certificate has ended, commands on the daemon's own machine go on. Raises ConfigError.
    """
    if not any(address.startswith(TLS_SCHEME) for address in addresses):
        return None
    chosen = _chosen(published)
    if not (chosen.tls_cert or chosen.tls_key):
        return None
    from ..service.tls import identity_of

    return identity_of(chosen)


def insecure() -> bool:
    """Whether GPUFERRY_INSECURE allows to speak in the clear to other machines. Raises ConfigError."""
    return _chosen({}).insecure
