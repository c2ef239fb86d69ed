"""Why a session is not moved, in words for whoever asked for it."""

from __future__ import annotations

ARRIVING = "its program is just coming after it from where it was before: try again"


class MigrationError(Exception):
    """The migration is given up; `reason` says why. Unless it is `Lost`, the session goes on where it was."""

    def __init__(self, reason: str) -> None:
        """`reason` may name what an image names: control characters in it are replaced."""
        self.reason = "".join(letter if letter.isprintable() else "?" for letter in reason)
        super().__init__(self.reason)


class Refused(MigrationError):
    """The session cannot be moved at all, or not to this destination."""


class OthersStay(Refused):
    """Another process of the program does not move, so this one does not either."""


class LinkBroken(MigrationError):
    """The other side went away, hangs, or talks nonsense."""


class Cancelled(MigrationError):
    """Somebody stopped the migration, or the session ended."""


class SnapshotError(MigrationError):
    """The file is damaged, or no snapshot of gpuferry."""


class Lost(MigrationError):
    """The migration is past the point of no return, and nobody said that it has the session."""
