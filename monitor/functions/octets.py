"""Values of headers are bytes, and aiohttp's are text: bytes that are no UTF-8 leave as they came."""

from __future__ import annotations

from typing import Any

from aiohttp import http_writer
from multidict import CIMultiDict

_theirs: Any = http_writer._serialize_headers


def _serialize(status_line: str, headers: CIMultiDict[str]) -> bytes:
    if all(value.isascii() for value in headers.values()):
        return bytes(_theirs(status_line, headers))
    lines = (status_line, *(f"{name}: {value}" for name, value in headers.items()))
    return (
        b"".join(
            http_writer._safe_header(line).encode("utf-8", "surrogateescape") + b"\r\n" for line in lines
        )
        + b"\r\n"
    )


def pass_on() -> None:
    """From now on, in this process: to programs, and to their callers. aiohttp's own way drops such bytes."""
    http_writer._serialize_headers = _serialize
