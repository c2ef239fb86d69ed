"""How the command fails: what, why, what next; and with which status."""

from __future__ import annotations

import enum
import os
import sys


class Exit(enum.IntEnum):
    """Exit statuses of every verb but the program's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NO_CAPACITY = 4
    UNREACHABLE = 5
    DENIED = 6


class CliError(Exception):
    """Ends the command with a message on stderr."""

    def __init__(self, status: Exit, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.hint = hint


def reason(error: Exception) -> str:
    """Why a file could not be read or written, without the system's number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def plain(text: str) -> str:
    """The text without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def say(what: str, hint: str = "", kind: str = "") -> None:
    """A message on stderr, if there is one; the hint says what to do."""
    if sys.stderr is None:  # closed: print() would take stdout in its place
        return
    what, hint = plain(what), plain(hint)  # it may be somebody else's word
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    name = "\x1b[1;31mgpuferry:\x1b[0m" if colour else "gpuferry:"
    print(f"{name} {kind}{what}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
