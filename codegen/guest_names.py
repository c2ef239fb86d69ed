"""What the names and expressions of a function's entry in the spec are in the guest's C."""

from __future__ import annotations

import re

from .expression import ExpressionError, Path, c_text, paths
from .model import Arg, Assignment, Effect, Kind, ObjectKind, Spec, SpecError, Variant, Where

CONSTANT = re.compile(r"(CU|GF_)\w+$")
# What an expression may ask besides the arguments, and what stands for it in C.
ROOTS = {"device": "gf_device_here()->", "session": "gf_session", "context": "gf_context_current()->"}
# An answer that is copied as it lies in memory.
BYTES = re.compile(r"bytes\((.*)\)$")
# Kinds of arguments that point to something.
BEHIND = {Kind.OUT, Kind.IN, Kind.INOUT, Kind.STRING, Kind.HOST, Kind.IMAGE}


class Names:
    """The names that the entry of one function may use."""

    def __init__(self, spec: Spec, variant: Variant) -> None:
        self.spec = spec
        self.variant = variant
        self.args = {arg.name: arg for arg in variant.args}

    def fail(self, where: Where, cause: str, remedy: str) -> SpecError:
        return SpecError(where, f"{self.variant.symbol}: {cause}", remedy)

    def expressions(self) -> list[tuple[str, Where]]:
        """Every expression of the function's entry, with its place in the spec."""
        found = [(e.condition, e.where) for e in self.variant.early]
        left: list[Assignment | Effect] = [*self.variant.answer, *self.variant.effect]
        while left:
            item = left.pop()
            if isinstance(item.value, str):
                copied = BYTES.match(item.value)
                found.append((copied[1] if copied else item.value, item.where))
            else:
                left += item.value
            if "." in item.target:
                found.append((item.target, item.where))
        for text in self.variant.calls.arguments if self.variant.calls else ():
            found.append((text, self.variant.where))
        for arg in self.variant.args:
            found += [(text, arg.where) for text in arg.clamp or ()]
        return found

    def paths(self, text: str) -> set[Path]:
        try:
            return paths(text)
        except ExpressionError:
            return set()

    def kinds(self, arg: Arg) -> list[ObjectKind]:
        return [self.spec.objects[name] for name in arg.of]

    def member(self, arg: Arg, path: Path, where: Where) -> str:
        """C text of a member of the object that a handle argument names."""
        name = path[1]
        if name == "self":
            return f"{arg.name}_object"
        if name == "handle":
            return f"(uint64_t){arg.name}"
        if name == "owner":
            text = f"{arg.name}_object->object.owner"
            # What is owned by a context, where the handle names no object, is the current one's.
            of_context = arg.nullable and self.kinds(arg)[0].owners == ("context",)
            return (
                f"({arg.name}_object == NULL ? gf_context_current_handle() : {text})" if of_context else text
            )
        fields = [kind.field(name) for kind in self.kinds(arg)]
        found = fields[0]
        if found is None or None in fields:
            known = ", ".join(["owner", *(f.name for f in self.kinds(arg)[0].fields)])
            raise self.fail(where, f"{'.'.join(path)}: a {arg.of[0]} has no {name!r}", f"Known: {known}")
        below = "".join(f"->{part}" for part in path[2:])
        text = f"{arg.name}_object->{name}{below}"
        if arg.nullable and found.absent is not None:
            return f"({arg.name}_object == NULL ? {found.absent} : {text})"
        return text

    def resolve(self, path: Path, where: Where) -> str:
        arg = self.args.get(path[0])
        if arg is not None and len(path) == 1:
            return arg.name
        if arg is not None and arg.kind is Kind.HANDLE:
            return self.member(arg, path, where)
        if arg is not None and arg.kind in BEHIND:
            return f"{arg.name}->{'.'.join(path[1:])}"
        if path[0] == "stream" and self.variant.stream == "implicit":
            return "stream"
        if path == ("context",):
            return "gf_context_current_handle()"
        if path == ("shown",):
            return "gf_context_shown()"
        if path[0] in ROOTS and len(path) > 1:
            root = self.device() if path[0] == "device" else ROOTS[path[0]]
            if path[0] == "context" and self.spec.objects["context"].field(path[1]) is None:
                raise self.fail(
                    where, f"a context has no {path[1]!r}", "Name one of its fields in objects.yaml"
                )
            return f"{root}{'' if root.endswith('->') else '.'}{'.'.join(path[1:])}"
        if len(path) == 1 and CONSTANT.match(path[0]):
            return path[0]
        known = ", ".join([*self.args, *ROOTS])
        raise self.fail(
            where, f"{'.'.join(path)!r} means nothing", f"Known: {known}, and constants of cuda.h"
        )

    def device(self) -> str:
        """What is known of the device that the call names, or else of the current one."""
        named = [arg.name for arg in self.variant.args if arg.kind is Kind.DEVICE]
        return f"gf_session.devices[{named[0]}]" if len(named) == 1 else ROOTS["device"]

    def value(self, text: str, where: Where) -> str:
        try:
            return c_text(text, lambda path: self.resolve(path, where))
        except ExpressionError as error:
            raise self.fail(where, str(error), "specs/README.md tells what an expression may say") from None

    def literal(self, item: Assignment) -> str:
        if isinstance(item.value, str):
            return self.value(item.value, item.where)
        parts = [f".{m.target} = {self.literal(m)}" if m.target else self.literal(m) for m in item.value]
        return f"{{{', '.join(parts)}}}"
