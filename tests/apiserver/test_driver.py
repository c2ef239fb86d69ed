"""The driver is found without cuda.pathfinder, and whatever else anybody asks of that is its own answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from gpuferry.guest import paths

STAND_IN = "from gpuferry.apiserver import driver; driver.stand_in(); import json, sys\n"
WITHOUT = "import json, sys\n"
START = """
from gpuferry.apiserver._core import Core
name = Core(0).device_name
modules = sorted(each for each in sys.modules if each.startswith("cuda.pathfinder"))
print(json.dumps([name, modules]), file=sys.stderr)
"""
LOADED = """
from cuda.pathfinder import load_nvidia_dynamic_lib
loaded = load_nvidia_dynamic_lib("cuda")
print(json.dumps([loaded._handle_uint, loaded.abs_path]), file=sys.stderr)
"""
MISTAKE = """
from cuda.pathfinder import load_nvidia_dynamic_lib, DynamicLibUnknownError
try:
    load_nvidia_dynamic_lib("no such library")
except DynamicLibUnknownError as error:
    print(json.dumps(str(error)), file=sys.stderr)
"""
MISSING = """
from cuda.pathfinder import load_nvidia_dynamic_lib
try:
    load_nvidia_dynamic_lib("cuda")
except Exception as error:
    print(json.dumps([type(error).__module__, str(error)]), file=sys.stderr)
"""


def said(code: str, driver: bool = True) -> Any:
    """What it writes to stderr: an engine takes stdout for what kernels print."""
    environment = {**os.environ, "LD_PRELOAD": paths.simulated_driver() if driver else ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stderr)


def test_an_engine_starts_without_pathfinder() -> None:
    device, modules = said(STAND_IN + START)
    assert modules == ["cuda.pathfinder"]
    real, modules = said(WITHOUT + START)
    assert device == real
    assert "cuda.pathfinder._dynamic_libs" in modules


def test_it_is_the_library_that_pathfinder_finds() -> None:
    assert said(STAND_IN + LOADED)[1] == said(WITHOUT + LOADED)[1]


def test_other_questions_are_pathfinders() -> None:
    assert said(STAND_IN + MISTAKE) == said(WITHOUT + MISTAKE)


def test_where_there_is_no_driver_pathfinder_says_so() -> None:
    assert said(STAND_IN + MISSING, driver=False) == said(WITHOUT + MISSING, driver=False)
