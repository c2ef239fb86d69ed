"""Sizes as people write them. Standard library only."""

from __future__ import annotations

import re

MOST = (1 << 63) - 1  # bytes
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int:
    """Bytes: `2GiB`, `512M`, `1.5g` and plain numbers. Units are binary, as CUDA's tools use them."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise ValueError(f"{text!r} is no size; write 2GiB, 512MiB or bytes")
    number, unit = match.groups()
    part = float(number) if "." in number else int(number)
    if part * (1 << _SHIFTS[unit]) > MOST:
        raise ValueError(f"{text!r} is more than anything has")
    return int(part * (1 << _SHIFTS[unit]))


def exact_size(size: int) -> str:
    """As `parse_size` reads it, in the largest unit of which there is a whole number."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def format_size(size: int) -> str:
    """The largest binary unit that keeps it readable."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
