"""Versions of this installation: of the package, the protocol, the spec, and what it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gpuferry.specs._generated import frames, wire

SCHEMA = "gpuferry.version/1"


def package_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("gpuferry")
    except PackageNotFoundError:
        return "0 (not installed)"


def versions() -> dict[str, Any]:
    """What two machines must agree on, and what else helps to compare them."""
    return {
        "schema": SCHEMA,
        "gpuferry": package_version(),
        "protocol": frames.PROTOCOL_VERSION,
        "spec": spec_hash(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def spec_hash() -> str:
    """The hash of all wire layouts, in hexadecimal."""
    return str(wire.SPEC_HASH.hex())
