"""Who asks: the operator, who sees and may do everything, or a tenant, for whom only its own exists."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuferry.specs._generated import control_pb2

from ..door.tokens import proof
from ..tenants.tenancy import Tenancy

Holds = Callable[[str, proof.Verifier], Awaitable[bool]]


@dataclass(frozen=True)
class Caller:
    """The caller of a control function; `tenant` is None for the operator."""

    tenant: str | None = None


OPERATOR = Caller()
A_FILE = "a file"  # what a tenant is told of one


class TooOften(Exception):
    """The tenant makes more calls than it may; the text says how many those are."""


class Callers:
    """Knows callers by their tokens. `holds`: whether a tenant has the token that this checks."""

    def __init__(self, token: bytes, holds: Holds, tenancy: Tenancy) -> None:
        self._token = token
        self._holds = holds
        self._tenancy = tenancy

    async def of(self, token: str, counts: bool = True) -> Caller | None:
        """Return the caller that a token belongs to, or None. `counts`: as a call of the tenant. Raises
        TooOften, and StoreError if the token cannot be looked up now.
        """
        if hmac.compare_digest(token.encode(), self._token):
            return OPERATOR
        tenant = proof.tenant_of(token)
        if tenant is None or not await self._holds(tenant, proof.verifier(token)):
            return None
        if counts and (refusal := self._tenancy.why_no_call(tenant)):
            raise TooOften(refusal)
        return Caller(tenant)


def visible(status: control_pb2.StatusReply, caller: Caller) -> control_pb2.StatusReply:
    """What of the status the caller may see: a tenant sees its sessions, and of devices what its programs
    see.
    """
    if caller.tenant is None:
        return status
    info = status.monitor
    seen = control_pb2.StatusReply(
        monitor=control_pb2.MonitorInfo(
            version=info.version,
            protocol_version=info.protocol_version,
            spec_hash=info.spec_hash,
            draining=info.draining,
            hostname=info.hostname,
        ),
        queue=[waiting for waiting in status.queue if waiting.tenant == caller.tenant],
    )
    for device in status.devices:
        seen.devices.add(
            ordinal=device.ordinal,
            name=device.name,
            uuid=device.uuid,
            instance=device.instance,
            simulated=device.simulated,
            driver_version=device.driver_version,
            memory_total=device.memory_total,
            state=device.state,
        )
    for session in status.sessions:
        if session.tenant == caller.tenant:
            mine = seen.sessions.add()
            mine.CopyFrom(session)
            mine.ClearField("server_pid")
            if mine.state != control_pb2.SESSION_STATE_MOVED:
                mine.ClearField("where")  # a path on the operator's machine
    numbers = {session.id for session in seen.sessions}
    seen.migrations.extend(_without_paths(one) for one in status.migrations if one.session in numbers)
    return seen


def _without_paths(migration: control_pb2.Migration) -> control_pb2.Migration:
    """Files are told by their paths on the operator's machine."""
    told = control_pb2.Migration()
    told.CopyFrom(migration)
    for name in ("source", "target"):
        if (path := getattr(migration, name)).startswith("/"):
            setattr(told, name, A_FILE)
            told.reason = told.reason.replace(path, A_FILE)
    return told
