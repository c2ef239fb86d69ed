"""Messages of control.proto as what JSON knows."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from gpuferry.specs._generated import control_pb2

SCHEMA = "gpuferry.status/1"


def word(kind: EnumDescriptor, value: int) -> str:
    """SERVER_STATE_IDLE of enum ServerState: "idle". What only a newer gpuferry has is its number."""
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.name).upper() + "_"
    known = kind.values_by_number.get(value)
    return known.name.removeprefix(prefix).lower() if known else str(value)


def _plain(value: Any, field: Any) -> Any:
    if field.message_type:
        return as_json(value)
    if field.enum_type:
        return word(field.enum_type, value)
    return value.hex() if isinstance(value, bytes) else value


def as_json(message: Message) -> dict[str, Any]:
    """Every field of the message by name; bytes in hexadecimal, enums in lower case, null if absent."""
    result: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            result[field.name] = [_plain(item, field) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            result[field.name] = None
        else:
            result[field.name] = _plain(value, field)
    return result


def status_json(status: control_pb2.StatusReply) -> dict[str, Any]:
    """A status as `gpuferry status --json` prints it, and as the page gets it."""
    return {"schema": SCHEMA} | as_json(status)
