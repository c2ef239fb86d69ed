"""Files that need each other can only be understood together: how many may, in each folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from .circles import c_graph, circles, describe, python_graph

ROOT = Path(__file__).parents[2]

# The largest circle allowed. 1: none.
C_FOLDERS = {
    "guest/src": 2,  # writer and reader of the channel: whoever is blocked writing reads
    "native/driver_interop": 1,
    "native/simdevice": 1,
    "native/simdevice/exec": 1,
    "native/simdevice/nvml": 1,
    "native/wire": 1,
}
PACKAGES = {
    "apiserver": 1,
    "bench": 1,
    "codegen": 1,
    "guest": 1,
    "migration": 1,
    "monitor": 1,
    "native/simdevice/compiler": 1,
    "native/simdevice/ptx": 1,
}


@pytest.mark.parametrize("folder", C_FOLDERS)
def test_circles_of_c_files(folder: str) -> None:
    graph = c_graph(ROOT / folder)
    assert graph, "the folder has moved"
    for group in circles(graph):
        assert len(group) <= C_FOLDERS[folder], describe(graph, group)


@pytest.mark.parametrize("package", PACKAGES)
def test_circles_of_modules(package: str) -> None:
    graph = python_graph(ROOT / package)
    assert graph, "the package has moved"
    for group in circles(graph):
        assert len(group) <= PACKAGES[package], describe(graph, group)


def test_a_circle_of_c_files_is_found(tmp_path: Path) -> None:
    """Private names, comments, strings and mere declarations need nobody."""
    (tmp_path / "a.c").write_text(
        'int shared_count;\nvoid first(void) {\n    second("fourth");\n}\nstatic void help(void) {}\n'
    )
    (tmp_path / "b.c").write_text("struct s *second(const char *text)\n{\n    help();\n    third(1);\n}\n")
    (tmp_path / "c.c").write_text("int third(int n) {\n    return n + shared_count; /* fourth */\n}\n")
    (tmp_path / "d.c").write_text("void first(void);\nvoid fourth(void) {\n    third(2);\n}\n")
    (tmp_path / "e.c").write_text("static void help(void) {}\nvoid fifth(void) {\n    help();\n}\n")
    graph = c_graph(tmp_path)
    assert circles(graph) == [{"a.c", "b.c", "c.c"}]
    assert "c.c needs a.c for shared_count" in describe(graph, {"a.c", "b.c", "c.c"})


def test_a_circle_of_modules_is_found(tmp_path: Path) -> None:
    """Also through a sub-package, and for types only."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "part" / "inner.py").write_text("from ..top import Thing\n")
    (tmp_path / "top.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .part import x\n"
    )
    (tmp_path / "leaf.py").write_text("from .top import Thing\nfrom os import path\n")
    assert circles(python_graph(tmp_path)) == [{"part", "part.inner", "top"}]
