"""What a session has of a device beside memory, between HELLO, Grant and policy."""

from __future__ import annotations

from typing import TypeVar

from gpuferry.specs._generated import control_pb2, node_pb2

from ..door.handshake import Hello
from ..policy.portion import FULL, PLAIN, Portion
from ..settings.scopes import SERVER

Said = TypeVar("Said", node_pb2.Portion, control_pb2.Portion)


def scoped(hello: Hello, scope: str) -> Hello:
    """The HELLO with the scope of its labels: its tenant's, unless the operator lets all see all."""
    whose = "" if scope == SERVER else hello.tenant
    if hello.portion.scope == whose:
        return hello
    return hello._replace(portion=hello.portion._replace(scope=whose))


def portion_of(grant: node_pb2.Grant) -> Portion:
    """What an earlier monitor granted; the scope is to be filled in."""
    if not grant.HasField("portion"):
        return PLAIN
    told = grant.portion
    return Portion(told.request, told.limit or FULL, told.affinity, told.anti_affinity, told.exclusion)


def said(portion: Portion, kind: type[Said]) -> Said | None:
    """The portion as a message of this kind, of a Grant or the status; None: there is nothing to say."""
    if portion.says_nothing:
        return None
    return kind(
        request=portion.request,
        limit=portion.limit,
        affinity=portion.affinity,
        anti_affinity=portion.anti_affinity,
        exclusion=portion.exclusion,
    )
