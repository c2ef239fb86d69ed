"""Log lines on stderr: JSON in a service, coloured text on a terminal."""

from __future__ import annotations

import os
import sys

import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str = "info") -> None:
    """Keys as house style wants them: ts, level, event, then session, device, server …"""
    terminal = sys.stderr.isatty()
    stamp: structlog.typing.Processor
    last: structlog.typing.Processor
    if terminal:
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        last = structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ, pad_event_to=24)
    else:
        stamp = structlog.processors.TimeStamper(fmt="iso", key="ts")
        last = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, structlog.processors.format_exc_info, last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
