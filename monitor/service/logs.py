"""Log lines on stderr: JSON in a service, coloured text on a terminal; never a secret in them."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TextIO, cast

import structlog

from .rates import Buckets

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
HIDDEN = "(hidden)"
_FIRST = ("ts", "level", "event", "session", "gpu", "server")
_NAMES = ("token", "secret", "proof", "password", "authorization")
LIBRARY_RATE, LIBRARY_BURST = 1.0, 5.0  # lines of one library, a second
_secrets: set[str] = set()


class Lossy:
    """A text file where a line that cannot be written is lost, and counted: logging to a full disk, or to
    nobody, must not end the work that is logged.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lost = 0

    def write(self, text: str) -> int:
        """Write the text; after lines that were lost, say first how many."""
        try:
            if self._lost:
                self._file.write(f"gpuferry: {self._lost} log lines could not be written\n")
                self._lost = 0
            return self._file.write(text)
        except OSError:
            self._lost += 1
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, or lose it."""
        try:
            self._file.flush()
        except OSError:
            self._lost += 1


class Libraries(logging.Handler):
    """What libraries say (aiohttp, gRPC, asyncio) is written as lines of our own. A stranger's request can be
    the reason, so there are a few a second.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._buckets = Buckets()
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, unless there were too many."""
        if not self._buckets.take(record.name, LIBRARY_RATE, LIBRARY_BURST):
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log = structlog.get_logger()
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write(record.getMessage(), library=record.name, exc_info=record.exc_info, **more)


libraries = Libraries()


def hide(secret: str) -> None:
    """Keep this secret out of all log lines from now on: out of values, messages and tracebacks."""
    _secrets.update((secret, json.dumps(secret)[1:-1]))  # as JSON writes it, too


def _redact(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {name: HIDDEN if name in _NAMES else value for name, value in event.items()}


def _without_secrets(_: object, __: str, event: structlog.typing.EventDict) -> str:
    line = str(event)  # the renderer before this one made text of it
    for secret in _secrets:
        line = line.replace(secret, HIDDEN)
    return line


def _printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape sequences move cursors and rewrite lines: what others say is shown, and not obeyed."""
    return {
        name: "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in value)
        if isinstance(value, str)
        else value
        for name, value in event.items()
    }


def _in_order(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {name: event[name] for name in _FIRST if name in event} | dict(event)


def configure(level: str = "info", form: str = "auto") -> None:
    """Set up logging. `level`: debug, info, warning, error; `form`: json, text, or auto by what stderr is."""
    stamp: structlog.typing.Processor
    last: structlog.typing.Processor
    if form == "text" or (form == "auto" and sys.stderr.isatty()):
        colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        last = structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=24)
    else:
        stamp = structlog.processors.TimeStamper(fmt="iso", key="ts")
        last = structlog.processors.JSONRenderer(default=str)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            _redact,
            _printable,
            _in_order,
            last,
            _without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Lossy(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.getLogger().addHandler(libraries)
