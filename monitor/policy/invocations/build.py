"""Policies over invocations by name, as options and configuration files spell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
