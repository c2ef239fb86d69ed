"""What this installation is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from gpuferry.specs._generated import wire


def package_version() -> str:
    """Of the installed distribution."""
    try:
        return version("gpuferry")
    except PackageNotFoundError:
        return "0 (not installed)"


def spec_hash() -> str:
    """Of all wire layouts, in hexadecimal."""
    return str(wire.SPEC_HASH.hex())
