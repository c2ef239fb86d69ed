"""Parts of a GPU and labels as people write them: what `gpuferry run` checks before a program begins, as the
guest library does (guest/src/portion.c). Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REQUEST, LIMIT = "GPUFERRY_GPU_REQUEST", "GPUFERRY_GPU_LIMIT"
AFFINITY, ANTI_AFFINITY, EXCLUSIVE = "GPUFERRY_AFFINITY", "GPUFERRY_ANTI_AFFINITY", "GPUFERRY_EXCLUSIVE"
WANTED = "GPUFERRY_LABELS"
FULL = 1000  # thousandths of a GPU
LABEL_MOST = 63  # characters
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def parse_share(text: str) -> int:
    """Thousandths of a GPU, rounded up, of a number from 0 to 1. ValueError says what to write."""
    match = re.fullmatch(r"([0-9]*)(?:\.([0-9]*))?", text)
    whole, places = (match[1], match[2] or "") if match else ("", "")
    if not whole + places:
        raise ValueError(f"{text!r} is no part of a GPU: write a number from 0 to 1, as 0.3")
    value = FULL * int(whole or 0) + int(places[:3].ljust(3, "0")) + bool(places[3:].strip("0"))
    if value > FULL:
        raise ValueError(f"{text} is more than a GPU: write a number from 0 to 1, as 0.3")
    return value


def check_label(text: str) -> str:
    """The label, if it is one; ValueError says what one is."""
    if len(text) > LABEL_MOST or not LABEL.fullmatch(text):
        raise ValueError(
            f"{text!r} is no label: write at most {LABEL_MOST} letters, digits, '.', '_' and '-', the first "
            "and the last a letter or digit"
        )
    return text


def check_wanted(text: str) -> str:
    """The labels that a GPU must have, "zone=a,gpu=h100", if that is what they are; ValueError says how they
    are written.
    """
    for label in [item for item in text.split(",") if item.strip()] or [text]:
        name, sign, value = label.partition("=")
        if not (name.strip() and sign and value.strip()):
            raise ValueError(f"{label!r} is no label of a GPU: write NAME=VALUE, as zone=a")
    return text


def check_shares(request: int, limit: int | None) -> None:
    """Raise ValueError unless 0 <= request <= limit <= 1, and the limit lets the program have anything.
    Thousandths; None: no limit was said.
    """
    if limit is not None and limit == 0:
        raise ValueError("a GPU limit of 0 lets the program have nothing: leave it out, or give more")
    if limit is not None and request > limit:
        raise ValueError(
            f"a GPU request of {request / FULL:g} is more than the GPU limit of {limit / FULL:g}: ask for "
            "less, or give a higher limit"
        )


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise ValueError if what the guest library reads from these makes no sense. It names the variable."""
    shares: dict[str, int | None] = {REQUEST: None, LIMIT: None}
    for name in shares:
        if text := settings.get(name):
            try:
                shares[name] = parse_share(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    check_shares(shares[REQUEST] or 0, shares[LIMIT])
    for name in (AFFINITY, ANTI_AFFINITY, EXCLUSIVE):
        if text := settings.get(name):
            try:
                check_label(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if text := settings.get(WANTED):
        try:
            check_wanted(text)
        except ValueError as error:
            raise ValueError(f"{WANTED}: {error}") from None
    if settings.get(AFFINITY) and settings.get("GPUFERRY_GPUS", "1") not in ("", "1"):
        raise ValueError(f"{AFFINITY} is for programs of one GPU: leave it, or GPUFERRY_GPUS, out")
