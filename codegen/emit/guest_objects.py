"""The guest's tables of objects: a struct, a table and its functions for each kind of `objects.yaml`."""

from __future__ import annotations

from ..model import ObjectKind, Spec
from ..render import render

FILE = "specs/cuda/objects.yaml"


def struct(kind: ObjectKind) -> str:
    """The C type of a kind's object in the guest."""
    return f"struct {kind.struct or 'gf_' + kind.name}"


def outputs(spec: Spec) -> dict[str, str]:
    kinds = spec.objects.all
    headers = sorted({kind.header for kind in kinds if kind.header is not None})
    return {
        "guest/_generated/objects.h": render(
            "guest_objects.h.j2", __file__, FILE, kinds=kinds, headers=headers, struct=struct
        ),
        "guest/_generated/objects.c": render(
            "guest_objects.c.j2", __file__, FILE, kinds=kinds, struct=struct
        ),
    }
