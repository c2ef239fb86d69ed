"""The messages of an operation: packed request and reply structs, and the payload that follows them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from . import codec
from .model import Arg, Field, Kind, Param, Spec, Types, Variant
from .scalars import C_TYPES as C_TYPES
from .scalars import WIRE_SIZES as WIRE_SIZES

BY_VALUE = {Kind.SCALAR, Kind.ENUM, Kind.FLAGS, Kind.DEVICE, Kind.POINTER, Kind.HANDLE}


class UnknownType(LookupError):
    """A C type that `types.yaml` does not know."""


@dataclass(frozen=True)
class Message:
    """The request and the reply of one operation. A payload is an argument whose bytes follow the struct,
    in this order.
    """

    variant: Variant
    request: tuple[Field, ...]
    reply: tuple[Field, ...]
    request_payload: tuple[Arg, ...]
    reply_payload: tuple[Arg, ...]

    @property
    def request_size(self) -> int:
        return size_of(self.request)

    @property
    def reply_size(self) -> int:
        return size_of(self.reply)

    def place(self, name: str) -> tuple[int, int | None]:
        """Offset of an argument in the request, and its size in bytes; None: it is the rest of the frame."""
        at = 0
        for member in self.request:
            size = size_of((member,))
            if member.name == name:
                return at, size
            at += size
        if [arg.name for arg in self.request_payload] != [name]:
            raise LookupError(f"{self.variant.symbol} has no {name!r} in its request")
        return at, None


def size_of(fields: tuple[Field, ...]) -> int:
    return sum(WIRE_SIZES[field.type] * field.count for field in fields)


def wire_field(types: Types, param: Param) -> Field:
    """The struct member that carries a parameter, or what it points to."""
    ctype = (param.pointee or param.ctype).removeprefix("const ")
    ctype = types.aliases.get(ctype, ctype)
    if ctype in types.scalars:
        return Field(param.name, types.scalars[ctype], param.count)
    if ctype in types.enums:
        return Field(param.name, types.enums[ctype])
    if ctype in types.handles:
        return Field(param.name, "u64")
    if ctype in types.nesting.structs:
        return Field(param.name, "u8", types.nesting.size(ctype))
    raise UnknownType(ctype)


def message(types: Types, variant: Variant) -> Message:
    request: list[Field] = []
    reply: list[Field] = []
    request_payload: list[Arg] = []
    reply_payload: list[Arg] = []
    behind = codec.behind_request(types, variant), codec.behind_reply(types, variant)
    request_payload.extend(behind[0])
    reply_payload.extend(behind[1])
    for arg in variant.args:
        if arg.kind is Kind.PAYLOAD:
            payload = request_payload if "const" in arg.param.ctype else reply_payload
            payload.append(arg)
        elif arg.kind in BY_VALUE or (arg.kind in (Kind.IN, Kind.INOUT) and arg not in behind[0]):
            request.append(wire_field(types, arg.param))
        if arg.kind in (Kind.OUT, Kind.INOUT) and arg not in behind[1]:
            reply.append(wire_field(types, arg.param))
    return Message(variant, tuple(request), tuple(reply), tuple(request_payload), tuple(reply_payload))


def messages(spec: Spec) -> list[Message]:
    return [message(spec.types, variant) for variant in spec.operations]


def _fields(fields: tuple[Field, ...]) -> str:
    return ",".join(f"{f.name}:{f.type}" + (f"[{f.count}]" if f.count > 1 else "") for f in fields)


def line(types: Types, m: Message) -> str:
    """The layout of one operation, of all types that are nested in it too: what two builds must agree on."""
    nested = codec.layout(types, m.variant)
    payloads = ["|".join(a.name for a in part) for part in (m.request_payload, m.reply_payload)]
    return (
        f"{m.variant.id} {m.variant.symbol} {m.variant.klass.value}"
        f" request({_fields(m.request)};{payloads[0]}) reply({_fields(m.reply)};{payloads[1]})"
        + (f" {nested}" if nested else "")
    )


def canonical(spec: Spec) -> str:
    """Every operation's line, in wire id order: two builds that agree on a line lay it out alike."""
    return "".join(f"{line(spec.types, m)}\n" for m in messages(spec))


def spec_hash(spec: Spec) -> bytes:
    return hashlib.sha256(canonical(spec).encode()).digest()
