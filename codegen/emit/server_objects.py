"""Kinds of objects on the API server: their numbers, and for plain kinds all between a handle and the driver.

A plain kind is the driver's handle and nothing else. What `objects.yaml` says of it is enough for its struct,
for find, adopt (rolled back when the guest's handle is no good), retire, and drop (what it owns goes first).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model import ObjectKind, ServerSide, Spec, SpecError, Use
from ..render import render
from ..server_steps import binding, cython_type
from .server import in_context

SOURCE = "specs/cuda/objects.yaml"


@dataclass(frozen=True)
class Plain:
    """A plain kind: `destroy` is the driver's call that ends one, `owner` the kind that is named when one
    is made, `owns` whether others end with it.
    """

    kind: ObjectKind
    driver: str
    destroy: str | None
    owner: str | None
    owns: bool
    in_context: bool

    @property
    def name(self) -> str:
        return self.kind.name


def wrong(kind: ObjectKind, cause: str, remedy: str) -> SpecError:
    return SpecError(kind.where, f"{kind.name}: {cause}", remedy)


def plain(spec: Spec, kind: ObjectKind) -> Plain:
    destroy = None
    if kind.destroy is not None:
        variant = spec.by_symbol[kind.destroy]
        if len(variant.signature.params) != 1:
            raise wrong(kind, f"{kind.destroy} takes more than what it ends", "Write its functions by hand")
        destroy = binding(spec, variant)
    inner = [owner for owner in kind.owners if owner not in ("session", "context")]
    if len(kind.owners) > 1:
        raise wrong(kind, "a plain kind has one owner", "Write its functions by hand")
    owner = inner[0] if inner else None
    owns = bool(spec.objects.owned_by(kind.name))
    return Plain(kind, cython_type(kind.ctype), destroy, owner, owns, in_context(spec, kind.name))


def drop(kind: ObjectKind) -> str:
    """Name of the function that ends an object of this kind on the server."""
    found = [name for name in kind.server.functions if name.startswith("drop_")]
    if len(found) != 1:
        raise wrong(kind, "nobody ends it when its owner goes", "List one drop_… under 'functions'")
    return found[0]


def used(spec: Spec) -> set[str]:
    """Return which functions of plain kinds some operation calls; the others are not written."""
    verbs = {Use.USE: "find", Use.CREATE: "adopt", Use.DESTROY: "retire"}
    return {f"{verbs[a.use]}_{name}" for v in spec.operations for a in v.args for name in a.of}


def outputs(spec: Spec) -> dict[str, str]:
    there = [kind for kind in spec.objects.all if kind.server.side is not ServerSide.NONE]
    made = [plain(spec, kind) for kind in there if kind.server.side is ServerSide.GENERATED]
    return {
        "apiserver/_generated/kinds.pxi": render(
            "server_kinds.pxi.j2",
            __file__,
            SOURCE,
            ("# ", ""),
            kinds=spec.objects.all,
            there=there,
            drop=drop,
        ),
        "apiserver/_generated/objects.pxi": render(
            "server_objects.pxi.j2",
            __file__,
            SOURCE,
            ("# ", ""),
            plain=made,
            used=used(spec),
            there=there,
            drop=drop,
        ),
    }
