"""Says in a daemon's log that its certificate, or its authority's, ends soon or has ended.

Nothing else would: whoever comes is kept out by its own TLS, and what starts with such a certificate ends.
"""

from __future__ import annotations

import asyncio

import structlog

from ..settings.errors import ConfigError
from .authority import described
from .tls import Identity

LOOK_SECONDS = 6 * 3600.0
NEXT = "`gpuferry doctor` says what to do"

log = structlog.get_logger()


async def watch(identity: Identity | None) -> None:
    """Look again and again, until cancelled. None: there is no TLS."""
    while identity:
        look(identity)
        await asyncio.sleep(LOOK_SECONDS)


def look(identity: Identity) -> None:
    """Log which of the two ends soon, or has ended."""
    for what, file in zip(("certificate", "authority"), identity.certificates, strict=True):
        try:
            said = described(file)
        except ConfigError as error:
            log.error(f"the {what} cannot be read", error=str(error), next_step=NEXT)
            continue
        when = f"{said.ends:%Y-%m-%d %H:%M} UTC"
        if said.left.total_seconds() < 0:
            log.error(
                f"the {what} has ended: nobody can come by it", file=str(file), ended=when, next_step=NEXT
            )
        elif said.ends_soon:
            log.warning(f"the {what} ends soon", file=str(file), ends=when, next_step=NEXT)
