"""Protobuf messages in the entries of a store; one that is damaged is a StoreError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from .interface import Entry, StoreError

M = TypeVar("M", bound=Message)
log = structlog.get_logger()


def record(kind: type[M], key: str, entry: Entry) -> M:
    """The message in an entry. Raises StoreError if it is damaged, which ends no daemon."""
    try:
        return kind.FromString(entry.value)
    except DecodeError:
        raise StoreError(f"the record {key} is damaged") from None


def records(kind: type[M], entries: Mapping[str, Entry]) -> list[M]:
    """The messages in all these entries. Raises StoreError."""
    return [record(kind, key, entry) for key, entry in entries.items()]


class View:
    """Reads what a watch shows, again and again: a record that is damaged is left out, and keeps nobody from
    the others. The log says so, once.
    """

    def __init__(self) -> None:
        self._told: dict[str, bytes] = {}  # values that were complained of, by key

    def read(self, kind: type[M], values: Mapping[str, bytes]) -> dict[str, M]:
        """The messages in these values that can be read, by key."""
        found = {}
        for key, value in values.items():
            try:
                found[key] = kind.FromString(value)
            except DecodeError:
                if self._told.get(key) != value:
                    self._told[key] = value
                    log.error("a record of the store is damaged, and left out", key=key)
        return found
