"""YAML with line numbers: every value knows where it stands, and a key that nobody asked for is an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from .model import SpecError, Where

E = TypeVar("E", bound=Enum)
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Value:
    """A YAML node and the file it is from."""

    def __init__(self, node: yaml.Node, file: str) -> None:
        self.node = node
        self.where = Where(file, node.start_mark.line + 1)

    def fail(self, cause: str, remedy: str) -> SpecError:
        """The SpecError for a mistake at this place."""
        return SpecError(self.where, cause, remedy)

    def _scalar(self, tag: str, what: str) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"tag:yaml.org,2002:{tag}":
            raise self.fail(f"expected {what}", f"Write {what} here")
        return str(self.node.value)

    @property
    def is_word(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def text(self) -> str:
        return self._scalar("str", "a text")

    def word(self) -> str:
        """The text or number here, as it is written."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fail("expected a text or a number", "Write one here")
        return str(self.node.value)

    def integer(self) -> int:
        return int(self._scalar("int", "a number"), 0)

    def flag(self) -> bool:
        return self._scalar("bool", "true or false") == "true"

    def choice(self, kind: type[E]) -> E:
        text = self.text()
        try:
            return kind(text)
        except ValueError:
            raise self.unknown(
                kind.__name__.lower().replace("klass", "class"), text, [m.value for m in kind]
            ) from None

    def unknown(self, what: str, text: str, known: list[str]) -> SpecError:
        near = difflib.get_close_matches(text, known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}"
        return self.fail(f"unknown {what} {text!r}", hint)

    def items(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fail("expected a list", "Write [a, b] or one '- item' per line")
        return [Value(node, self.where.file) for node in self.node.value]

    def texts(self) -> tuple[str, ...]:
        """The text or the list of texts here."""
        if isinstance(self.node, yaml.ScalarNode):
            return (self.text(),)
        return tuple(item.word() for item in self.items())

    def mapping(self) -> Mapping:
        return Mapping(self.node, self.where.file)


class Mapping(Value):
    """A YAML mapping whose keys are taken one by one; `done` refuses what is left."""

    def __init__(self, node: yaml.Node, file: str) -> None:
        super().__init__(node, file)
        if not isinstance(node, yaml.MappingNode):
            raise self.fail("expected a mapping", "Write 'key: value' lines")
        self.keys: dict[str, Value] = {}
        self.asked: list[str] = []
        self.left: dict[str, Where] = {}
        for key_node, value_node in node.value:
            key = Value(key_node, file)
            name = key.text()
            if name in self.keys:
                raise key.fail(
                    f"{name!r} is given twice", f"Remove one; the first is on line {self.left[name].line}"
                )
            self.keys[name] = Value(value_node, file)
            self.left[name] = key.where

    def get(self, name: str) -> Value | None:
        """The value of a key, or None; the key counts as asked for."""
        self.asked.append(name)
        self.left.pop(name, None)
        return self.keys.get(name)

    def need(self, name: str) -> Value:
        """The value of a key. Raises SpecError if it is missing."""
        value = self.get(name)
        if value is None:
            raise self.fail(f"missing key {name!r}", f"Add '{name}: …'")
        return value

    def all(self) -> Iterator[tuple[str, Value]]:
        """Every entry, for a mapping whose keys are names."""
        self.left.clear()
        yield from self.keys.items()

    def done(self) -> None:
        """Raise SpecError if a key is left that nobody asked for."""
        for name, where in self.left.items():
            near = difflib.get_close_matches(name, self.asked, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(sorted(self.asked))}"
            raise SpecError(where, f"unknown key {name!r}", hint)


def read(path: Path, shown: str) -> Mapping:
    """The document in a file; `shown` is how messages name the file. Raises SpecError if it is no YAML."""
    return parse(path.read_text(encoding="utf-8"), shown)


def parse(text: str, shown: str) -> Mapping:
    """Parse the text of a YAML file; `shown` is the file's name in error messages."""
    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(
            Where(shown, line), f"not YAML: {error.problem}", "Check indentation, quotes and colons"
        ) from None
    if node is None:
        raise SpecError(Where(shown, 1), "the file is empty", "Start from a neighbouring spec file")
    return Mapping(node, shown)
