"""Protobuf messages in the entries of a store; one that is damaged is a StoreError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from .interface import Entry, StoreError

M = TypeVar("M", bound=Message)


def record(kind: type[M], key: str, entry: Entry) -> M:
    """The message in an entry. Raises StoreError if it is damaged, which ends no daemon."""
    try:
        return kind.FromString(entry.value)
    except DecodeError:
        raise StoreError(f"the record {key} is damaged") from None


def records(kind: type[M], entries: Mapping[str, Entry]) -> list[M]:
    """The messages in all these entries. Raises StoreError."""
    return [record(kind, key, entry) for key, entry in entries.items()]
