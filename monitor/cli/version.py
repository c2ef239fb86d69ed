"""`gpuferry version`. Standard library only."""

from __future__ import annotations

import argparse
import json

from ..service.versions import versions
from .errors import Exit


def main(arguments: list[str]) -> int:
    """Prints the version, and what two machines must agree on."""
    options = argparse.ArgumentParser(
        prog="gpuferry version", description="The version, and what it speaks.", allow_abbrev=False
    )
    options.add_argument("--json", action="store_true", help="Machine-readable, with a stable schema")
    found = versions()
    if options.parse_args(arguments).json:
        print(json.dumps(found, indent=2))
    else:
        print(f"gpuferry {found['gpuferry']}, protocol {found['protocol']}, spec {found['spec'][:12]}")
    return Exit.OK
