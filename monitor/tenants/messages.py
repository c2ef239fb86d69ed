"""Limits and usage as tenants.proto has them."""

from __future__ import annotations

import math
from typing import Any

from gpuferry.specs._generated import tenants_pb2

from ..settings.limits import KINDS, NAMES, WEIGHT_LEAST, WEIGHT_MOST, Limits

COUNTED_MOST = (1 << 63) - 1  # of any figure: API servers count, and are not believed
USED = ("sessions", "wall_seconds", "gpu_seconds", "memory_byte_seconds", "calls")


def to_message(tenant: str, limits: Limits) -> tenants_pb2.Limits:
    """The limits as a message; what they do not say is absent."""
    said = {name: value for name in NAMES if (value := getattr(limits, name)) is not None}
    return tenants_pb2.Limits(tenant=tenant, **said)


def from_message(message: tenants_pb2.Limits) -> Limits:
    """The limits of a message, whoever sent it: what is no number, or negative, is not said."""
    said = {name: getattr(message, name) for name in NAMES if message.HasField(name)}
    sound = {name: value for name, value in said.items() if not math.isnan(value) and value >= 0}
    sound = {name: value for name, value in sound.items() if value < math.inf or not KINDS[name].finite}
    if "weight" in sound:
        sound["weight"] = min(max(sound["weight"], WEIGHT_LEAST), WEIGHT_MOST)
    return Limits(**sound)


def only_newer(message: tenants_pb2.Limits) -> bytes:
    """What the message says and only a newer gpuferry knows, as it came: it stays where others change."""
    rest = tenants_pb2.Limits()
    rest.CopyFrom(message)
    for field in rest.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return bytes(rest.SerializeToString())


def plain_limits(message: tenants_pb2.Limits) -> dict[str, Any]:
    """The limits of a message for JSON: numbers by name, null for no limit."""
    limits = from_message(message)
    return {
        name: None if value == math.inf else int(value) if value == int(value) else value
        for name in NAMES
        if (value := getattr(limits, name)) is not None
    }


def plain_usage(usage: tenants_pb2.Usage) -> dict[str, Any]:
    """Usage for JSON, without the tenant's name."""
    return {name: getattr(usage, name) for name in USED}


def add_usage(total: tenants_pb2.Usage, more: tenants_pb2.Usage) -> None:
    """Add `more` to `total`, figure by figure; no figure grows beyond COUNTED_MOST."""
    for name in USED:
        setattr(total, name, min(getattr(total, name) + getattr(more, name), COUNTED_MOST))
