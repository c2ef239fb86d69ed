"""Settings declared once: a line in a class of options is flag, variable, TOML key, help and check."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuferry.guest.endpoint import TLS_SCHEME, split_address
from gpuferry.guest.units import exact_size, parse_size

_KEY = "option"
NONE = "none"


@dataclass(frozen=True)
class Kind:
    """How a value is written, in a flag or a variable as text, in a file also as TOML's own types."""

    metavar: str
    parse: Callable[[str], Any]  # ValueError says what is wrong with the text
    toml: tuple[type, ...] = (str,)  # what a file may hold; `parse` gets it as text, unless it is a mapping
    show: Callable[[Any], str] = str  # a value as people read it


@dataclass(frozen=True)
class Option:
    """One setting of one program."""

    name: str
    kind: Kind
    help: str
    variable: str
    named: bool  # the variable does not follow from the option's name
    hidden: bool
    topic: str  # the heading under which help lists it

    @property
    def flag(self) -> str:
        """The option as on the command line: `--some-name`."""
        return "--" + self.name.replace("_", "-")


def option(kind: Kind, default: Any, help: str, variable: str = "", hidden: bool = False) -> Any:
    """The default of a dataclass field. A callable default is asked for when the setting is read."""
    metadata = {_KEY: (kind, help, variable, hidden)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(table: type, program: str) -> Iterator[Option]:
    """The options that a class and its bases declare, base by base; the docstring of a base is their topic. A
    variable is GPUFERRY_<PROGRAM>_<NAME> unless it was named.
    """
    entries = {entry.name: entry for entry in dataclasses.fields(table)}
    for base in table.__mro__:
        topic = "Options" if base is table else (base.__doc__ or "").rstrip(".")
        for name in inspect.get_annotations(base):
            if _KEY in entries[name].metadata:
                kind, help, variable, hidden = entries[name].metadata[_KEY]
                usual = f"GPUFERRY_{program}_{name}".upper()
                yield Option(name, kind, help, variable or usual, bool(variable), hidden, topic)


def text(metavar: str = "TEXT") -> Kind:
    """A kind of setting: any text but an empty one."""

    def parse(value: str) -> str:
        if not value:
            raise ValueError("it is empty")
        return value

    return Kind(metavar, parse)


def path(metavar: str = "FILE") -> Kind:
    """A kind of setting: a path; `~` is the home folder."""

    def parse(value: str) -> str:
        if not value:
            raise ValueError("it is empty: a path is wanted")
        return os.path.abspath(os.path.expanduser(value))

    return Kind(metavar, parse)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of an error message about a name that is not known, as in "; did you mean mqfq?"; empty: no
    name is near.
    """
    from difflib import get_close_matches  # takes milliseconds, and only a mistake needs it

    near = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def choice(*names: str) -> Kind:
    """A kind of setting: one of a few words."""

    def parse(value: str) -> str:
        if value not in names:
            question = meant(value, names)
            raise ValueError(f"{value!r} is not known: choose one of {', '.join(names)}{question}")
        return value

    return Kind("|".join(names), parse)


def count(least: int = 0, most: float = math.inf, metavar: str = "N") -> Kind:
    """A kind of setting: a whole number from `least` to `most`."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is no whole number") from None
        if number < least:
            raise ValueError(f"{number} is too few: at least {least} is wanted")
        if number > most:
            raise ValueError(f"{number} is too many: at most {most} are possible")
        return number

    return Kind(metavar, parse, (int,))


def numbers(most: int) -> Kind:
    """A kind of setting: whole numbers up to `most` that follow each other, as the first and how many
    (`span`).
    """

    def parse(value: str) -> str:
        first, colon, amount = value.partition(":")
        if not (colon and first.isdecimal() and amount.isdecimal() and int(first) and int(amount)):
            raise ValueError(f"{value!r}: FIRST:COUNT is wanted, as 200000:4096")
        if span(value).stop > most + 1:
            raise ValueError(f"{value!r}: numbers up to {most} are possible")
        return value

    return Kind("FIRST:COUNT", parse)


def span(value: str) -> range:
    """The numbers that such a setting means."""
    first, _, amount = value.partition(":")
    return range(int(first), int(first) + int(amount))


def seconds(least: float = 0.0, most: float = 1e9) -> Kind:
    """A kind of setting: a duration in seconds, of no more than API servers believe (apiserver/orders.py)."""

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is no number of seconds") from None
        if number > most:
            raise ValueError(f"{value} is out of range: at most {most:g} s is possible")
        if not number >= least:
            raise ValueError(f"{value} is out of range: at least {least:g} s is wanted")
        return number

    return Kind("SECONDS", parse, (int, float), "{:g}".format)


def factor(least: float, most: float = sys.float_info.max) -> Kind:
    """A kind of setting: how many times something is, from `least` to `most`."""

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is no number") from None
        if number > most:
            raise ValueError(f"{value} is out of range: at most {most:g} is possible")
        if not number >= least:
            raise ValueError(f"{value} is out of range: at least {least:g} is wanted")
        return number

    return Kind("FACTOR", parse, (int, float), "{:g}".format)


def size() -> Kind:
    """A kind of setting: bytes, also as 2GiB."""
    return Kind("SIZE", parse_size, (str, int), exact_size)


def switch() -> Kind:
    """A kind of setting: on or off."""
    words = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(
        ("false", "no", "off", "0"), False
    )

    def parse(value: str) -> bool:
        try:
            return words[value.lower()]
        except KeyError:
            raise ValueError(f"{value!r}: write true or false") from None

    return Kind("", parse, (bool,), lambda value: str(value).lower())


def address(*, tcp: bool = True, unix: bool = True, word: str = "") -> Kind:
    """A kind of setting: HOST:PORT or unix:PATH, whichever are allowed, or this word."""
    forms = " or ".join(form for form, wanted in (("HOST:PORT", tcp), ("unix:PATH", unix)) if wanted)

    def parse(value: str) -> str:
        if word and value == word:
            return value
        is_unix = value.startswith("unix:")
        if not (unix if is_unix else tcp):
            raise ValueError(f"{value!r}: {forms} is wanted")
        if value.startswith(TLS_SCHEME):
            raise ValueError(f"{value!r}: {forms} is wanted; a port speaks TLS where --tls-cert is given")
        split_address(value)
        return value

    return Kind(forms.replace(" or ", "|"), parse)


def _pairs(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={content}" for name, content in values.items()) or "-"


def mapping(metavar: str = "NAME=VALUE") -> Kind:
    """A kind of setting: pairs, as a repeated flag, `a=1,b=2` in a variable, or a table in a file."""

    def parse(value: str) -> Mapping[str, str]:
        pairs = {}
        for item in filter(None, (part.strip() for part in value.split(","))):
            name, equals, content = item.partition("=")
            if not (equals and name):
                raise ValueError(f"{item!r}: {metavar} is wanted")
            if name.strip() in pairs:
                raise ValueError(f"{name.strip()} is given twice: the one would replace the other")
            pairs[name.strip()] = content.strip()
        return pairs

    return Kind(metavar, parse, (dict,), _pairs)


def optional(kind: Kind) -> Kind:
    """Make a kind of setting where `none` means that there is no value."""
    return dataclasses.replace(
        kind,
        parse=lambda value: None if value == NONE else kind.parse(value),
        show=lambda value: NONE if value is None else kind.show(value),
    )
