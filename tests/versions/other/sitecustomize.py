"""On the path of a server that is to be of another build: the test generated its contract elsewhere."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any

PACKAGE = "gpuferry.specs._generated."
CONTRACT = ("constants", "frames", "operations", "wire")


class Elsewhere:
    """Finds the modules of the contract."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for all others."""
        if not name.startswith(PACKAGE) or name[len(PACKAGE) :] not in CONTRACT:
            return None
        file = os.path.join(os.environ["GPUFERRY_TEST_GENERATED"], f"{name[len(PACKAGE) :]}.py")
        return importlib.util.spec_from_file_location(name, file)


if "GPUFERRY_TEST_GENERATED" in os.environ:
    sys.meta_path.insert(0, Elsewhere())
