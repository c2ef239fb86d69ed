"""Messages of a protobuf contract that say anything at all, field by field."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


class Forger:
    """Fills messages by chance. `sessions`: numbers that mean something to whoever reads them; the more often
    one is named, the more often it is said. `wild`: how many of the other numbers are none that anybody says.
    """

    def __init__(self, chance: random.Random, sessions: tuple[int, ...], wild: float = 1.0) -> None:
        self._chance = chance
        self._wild = wild
        self._sessions = (*sessions, 0, (1 << 64) - 1)

    def packet(self, message: Message, kind: str) -> bytes:
        """The bytes of such a message with this one of its kinds; of some a bit is wrong."""
        getattr(message, kind).SetInParent()
        self._fill(getattr(message, kind), 3)
        data = bytearray(message.SerializeToString())
        if data and self._chance.random() < 0.1 * self._wild:
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(data)

    def _fill(self, message: Message, depth: int) -> None:
        chance = self._chance
        for field in message.DESCRIPTOR.fields:
            if chance.random() < 0.3:
                continue
            if field.message_type is not None:
                if depth and field.is_repeated:
                    for _ in range(chance.randrange(3)):
                        self._fill(getattr(message, field.name).add(), depth - 1)
                elif depth:
                    getattr(message, field.name).SetInParent()
                    self._fill(getattr(message, field.name), depth - 1)
            elif field.is_repeated:
                getattr(message, field.name).extend(self._value(field) for _ in range(chance.randrange(3)))
            else:
                setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        chance = self._chance
        if field.name == "session":
            return chance.choice(self._sessions)
        kinds, wild = FieldDescriptor, chance.random() < self._wild
        if field.cpp_type in (kinds.CPPTYPE_DOUBLE, kinds.CPPTYPE_FLOAT):
            return chance.choice((0.0, 1.5, -1.0, 1e300, float("inf"), float("nan")) if wild else (0.0, 1.5))
        if field.cpp_type == kinds.CPPTYPE_BOOL:
            return chance.random() < 0.5
        if field.cpp_type == kinds.CPPTYPE_STRING:
            if field.type == kinds.TYPE_BYTES:
                return chance.randbytes(chance.choice((0, 1, 16, 32, 300) if wild else (32,)))
            return chance.choice(("", "closed", "moved", "a\nb\x1b[31m", "ü" * 200))
        if field.cpp_type == kinds.CPPTYPE_ENUM:
            return chance.choice((0, 1, 2, 3, 6, 77))
        if not wild:
            return chance.choice((0, 1, 7))
        wide = field.cpp_type in (kinds.CPPTYPE_UINT64, kinds.CPPTYPE_INT64)
        signed = field.cpp_type in (kinds.CPPTYPE_INT32, kinds.CPPTYPE_INT64)
        bits = (64 if wide else 32) - signed
        return chance.choice((0, 1, 7, 300, 1 << 30, (1 << 31) - 1, (1 << bits) - 1))
