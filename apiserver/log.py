"""JSON lines on stderr: ts, level, event, and what the line is about."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

QUIET = os.environ.get("GPUFERRY_LOG_LEVEL") in ("warning", "error")  # as the monitor was told


class Log:
    """A logger whose lines all carry the same fields, and those of the session under way."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        return Log(**(self._fields | fields))

    def info(self, event: str, **fields: object) -> None:
        if not QUIET:
            self._write("info", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = {"ts": stamp, "level": level, "event": event} | self._fields | fields
        with contextlib.suppress(OSError):  # nobody reads it
            print(json.dumps(line), file=sys.stderr, flush=True)
