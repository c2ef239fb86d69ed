"""On PYTHONPATH of a sanitizer run: the engine is the one that GPUFERRY_CORE names."""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

ENGINE = "gpuferry.apiserver._core"


class SanitizedEngine:
    """Found before the installed one."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the engine's module only."""
        if name != ENGINE:
            return None
        return importlib.util.spec_from_file_location(name, os.environ["GPUFERRY_CORE"])


sys.meta_path.insert(0, SanitizedEngine)
