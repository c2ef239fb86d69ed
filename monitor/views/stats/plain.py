"""Messages of control.proto as what JSON knows."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import Message
from gpuferry.specs._generated import control_pb2

SCHEMA = "gpuferry.status/1"


def _plain(value: Any, field: Any) -> Any:
    if field.message_type:
        return as_json(value)
    if field.enum_type:
        # SERVER_STATE_IDLE of enum ServerState: "idle"
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field.enum_type.name).upper() + "_"
        return field.enum_type.values_by_number[value].name.removeprefix(prefix).lower()
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
