"""Which files of a folder need each other: C by names that one defines and another uses, Python by import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Graph = dict[str, dict[str, set[str]]]  # file: files that it needs: for what

_IGNORED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_PRIVATE = r"^(?!static\b|typedef\b|extern\b|#)"
_FUNCTION = re.compile(_PRIVATE + r"[A-Za-z_][\w \t*]*?[\s*](\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)
_VARIABLE = re.compile(
    _PRIVATE
    + r"(?:[A-Za-z_]\w*[ \t*]+)+?(\w+)(?:\[[^\]]*\])*(?:\s+__attribute__\(\([^;=]*\)\))?\s*(?:=[^;]*)?;",
    re.MULTILINE,
)


def c_graph(folder: Path) -> Graph:
    """The .c files of a folder: which of them a header's names lead to."""
    texts = {path.name: _IGNORED.sub(" ", path.read_text()) for path in sorted(folder.glob("*.c"))}
    home: dict[str, str] = {}
    for file, text in texts.items():
        outside = _outside_of_braces(text)
        for pattern in (_FUNCTION, _VARIABLE):
            for match in pattern.finditer(outside):
                home.setdefault(match[1], file)
    graph: Graph = {file: {} for file in texts}
    for file, text in texts.items():
        for name in set(_NAME.findall(text)) & home.keys():
            if home[name] != file:
                graph[file].setdefault(home[name], set()).add(name)
    return graph


def _outside_of_braces(text: str) -> str:
    """Definitions without their bodies."""
    kept, depth = [], 0
    for piece in re.split(r"([{}])", text):
        if piece == "}":
            depth -= 1
            kept.append("}\n" if depth == 0 else "")
        elif depth == 0:
            kept.append(piece)
        depth += piece == "{"
    return "".join(kept)


def python_graph(package: Path) -> Graph:
    """The modules of a package, sub-packages included. An import for types only is one, too."""
    modules = {_module_name(package, path): path for path in sorted(package.rglob("*.py"))}
    graph: Graph = {".".join(name): {} for name in modules}
    for name, path in modules.items():
        home = name if path.name == "__init__.py" else name[:-1]
        for base, imported in _relative_imports(path, home):
            target = (*base, imported) if (*base, imported) in modules else base
            if target in modules and target != name:
                graph[".".join(name)].setdefault(".".join(target), set()).add(imported)
    return graph


def _module_name(package: Path, path: Path) -> tuple[str, ...]:
    parts = path.relative_to(package).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _relative_imports(path: Path, home: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = home[: len(home) - node.level + 1]
            base += tuple((node.module or "").split(".")) if node.module else ()
            for alias in node.names:
                yield base, alias.name


def circles(graph: Graph) -> list[set[str]]:
    """Groups of files each of which reaches all others of its group; the largest first."""
    reached = {file: _reachable(graph, file) for file in graph}
    found: list[set[str]] = []
    for file in graph:
        group = {other for other in reached[file] if file in reached[other]}
        if group and group not in found:
            found.append(group)
    return sorted(found, key=len, reverse=True)


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    pending = [start]
    while pending:
        for other in graph[pending.pop()]:
            if other not in seen:
                seen.add(other)
                pending.append(other)
    return seen


def describe(graph: Graph, group: set[str]) -> str:
    """The edges within a circle, one a line."""
    lines = [f"{len(group)} files need each other:"]
    for file in sorted(group):
        for other in sorted(graph[file].keys() & group):
            lines.append(f"  {file} needs {other} for {', '.join(sorted(graph[file][other]))}")
    return "\n".join(lines)
