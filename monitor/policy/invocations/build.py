"""Policies over invocations by name, as options and configuration files spell them."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from . import names
from .auto import Auto
from .batch import Batch
from .books import Books
from .eevdf import Eevdf
from .exclusive import Exclusive
from .fcfs import Fcfs
from .kaas import CfsAffinity
from .lalb import Lalb
from .local import LoadBalance, RoundRobin, RoundRobinO3
from .mqfq import Mqfq
from .sjf import Paella

MOST = 1e9  # of an option: what is counted in seconds has to add up, and to be compared with what ran

_CLASSES: tuple[Callable[..., Books], ...] = (
    Fcfs,
    Batch,
    Paella,
    Eevdf,
    Mqfq,
    RoundRobin,
    LoadBalance,
    RoundRobinO3,
    partial(Lalb, skips=0),
    Lalb,
    CfsAffinity,
    Exclusive,
    Auto,
)
POLICIES: Mapping[str, Callable[..., Books]] = dict(zip(names.POLICIES, _CLASSES, strict=True))


def build(policy: str = names.POLICIES[0], **options: Any) -> Books:
    """A policy by its name. `options` are those of its class: `tokens`, `pool`, `evict`, and its own.

    Raises KeyError if there is no such name, TypeError if it has no such option, ValueError if an option is
    out of range.
    """
    return POLICIES[policy](**options)


def options_of(policy: str) -> Mapping[str, inspect.Parameter]:
    """The options of a policy's class by name, with their defaults. Raises KeyError."""
    return inspect.signature(POLICIES[policy]).parameters


def read_options(policy: str, texts: Mapping[str, str], without: Iterable[str] = ()) -> dict[str, Any]:
    """Options as people write them, as the values that `build` takes. `without`: those that are set
    otherwise. Raises ValueError that names the policy's options, or says which text is no such value.
    """
    known = {name: option for name, option in options_of(policy).items() if name not in without}
    values = {}
    for name, text in texts.items():
        if name not in known:
            has = ", ".join(f"{one.name} ({_shown(one.default)})" for one in known.values())
            raise ValueError(f"{policy} has no option {name}: it has {has}")
        values[name] = _value(name, text, str(known[name].annotation))
    return values


def _value(name: str, text: str, kind: str) -> Any:
    if text == "none" and kind.endswith("| None"):
        return None
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError(f"{name} is true or false, not {text}")
        return text == "true"
    numbers: Mapping[str, tuple[Callable[[str], Any], str]] = {
        "int": (int, "a whole number"),
        "float": (float, "a number"),
    }
    if kind.removesuffix(" | None") not in numbers:
        return text
    read, what = numbers[kind.removesuffix(" | None")]
    try:
        value = read(text)
    except ValueError:
        raise ValueError(f"{name} is {what}, not {text}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} is {what}, not {text}")
    if kind.startswith("float") and abs(value) > MOST:
        raise ValueError(f"{name} is {what} up to {MOST:g}, not {text}")
    return value


def _shown(value: object) -> str:
    return "unlimited" if value == sys.maxsize else str(value).lower()
