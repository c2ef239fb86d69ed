"""What is wrong with a setting."""

from __future__ import annotations


class ConfigError(Exception):
    """A setting that cannot work; the text, or the hint, says what to do about it."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class UsageError(ConfigError):
    """A setting that is wrong as it is written, wherever that is: trying again will not help."""
