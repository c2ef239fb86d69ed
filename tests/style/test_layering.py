"""Who may import whom (the contracts are in pyproject.toml), and what nobody imports."""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
# Files on the longest way of imports through the monitor, imports inside functions included. It was 20 once.
DEEPEST = 16
SHIPPED = ("apiserver", "guest", "migration", "monitor", "native", "specs")


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "build" / "tree")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("folder", SHIPPED)
def test_nothing_shipped_imports_the_generator_tests_or_benchmarks(folder: str) -> None:
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            wrong += [
                f"{path.relative_to(ROOT)}:{node.lineno} imports {name}"
                for name in names
                if name.split(".")[0] in {"codegen", "tests", "bench"}
            ]
    assert not wrong


Imports = Mapping[str, set[str]]


def imports_of(package: str) -> Imports:
    """What each module of the package imports of the package: at its top, inside functions, or for types."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def longest_chain(imports: Imports) -> list[str]:
    """Modules of which each imports the next. CycleError: some need each other."""
    below: dict[str, list[str]] = {}
    for module in TopologicalSorter(imports).static_order():
        chains = [below[needed] for needed in imports[module]]
        below[module] = [module, *max(chains, key=len, default=[])]
    return max(below.values(), key=len)


def test_no_files_of_the_monitor_need_each_other_and_imports_are_not_deep() -> None:
    try:
        chain = longest_chain(imports_of("gpuferry.monitor"))
    except CycleError as error:
        pytest.fail(f"these need each other: {' -> '.join(error.args[1])}")
    assert len(chain) <= DEEPEST, " -> ".join(chain)


def test_a_circle_and_a_long_way_are_found() -> None:
    assert longest_chain({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == ["a", "b", "c"]
    with pytest.raises(CycleError):
        longest_chain({"a": {"b"}, "b": {"a"}})
