"""Who may import whom (the contracts are in pyproject.toml), and what nobody imports."""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from .circles import Graph, python_graph

ROOT = Path(__file__).parents[2]
# Files on the longest way of imports through the monitor, imports inside functions included. It was 21 once.
DEEPEST = 17
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


def longest_chain(graph: Graph) -> list[str]:
    """Files of which each needs the next. CycleError: some need each other."""
    below: dict[str, list[str]] = {}
    for file in TopologicalSorter(graph).static_order():
        chains = [below[needed] for needed in graph[file]]
        below[file] = [file, *max(chains, key=len, default=[])]
    return max(below.values(), key=len)


def test_imports_in_the_monitor_are_not_deep() -> None:
    chain = longest_chain(python_graph(ROOT / "monitor"))
    assert len(chain) <= DEEPEST, " -> ".join(chain)


def test_a_long_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from . import b\nfrom .c import y\n")
    (tmp_path / "b.py").write_text("def f():\n    from .c import x\n")
    (tmp_path / "c.py").write_text("")
    assert longest_chain(python_graph(tmp_path)) == ["a", "b", "c"]
