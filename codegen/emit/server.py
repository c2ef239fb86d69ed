"""The API server's side of each operation: struct declarations and dispatch table, for Cython.

What an operation does is in server_steps.py; what it leaves behind, for a session that moves, is here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Kind, Lasting, Needs, Spec, SpecError, Use, Variant
from ..render import render
from ..server_steps import handler
from ..wire import Message, messages


@dataclass(frozen=True)
class Kept:
    """What the server keeps of an operation that leaves something behind: where its handle lies (None: the
    current context), what tells calls apart, and which context must be current when it is replayed.
    """

    message: Message
    handle: int | None
    by: tuple[tuple[int, int | None], ...]
    context: str

    @property
    def variant(self) -> Variant:
        return self.message.variant


def in_context(spec: Spec, name: str) -> bool:
    """Whether objects of a kind end with a context, directly or by way of their owners."""
    owners = spec.objects[name].owners
    return "context" in owners or any(in_context(spec, o) for o in owners if o in spec.objects)


def kept(spec: Spec, message: Message) -> Kept | None:
    """What is kept of an operation; None: the frame itself need not be kept."""
    variant, replay = message.variant, message.variant.replay
    if replay is None or replay.lasting in (Lasting.NONE, Lasting.CUSTOM):
        return None
    bulk = next((arg for arg in message.request_payload if arg.bulk), None)
    if bulk is not None:
        cause = f"{variant.symbol}: {bulk.name!r} is gone when the frame would be kept"
        raise SpecError(bulk.where, cause, "Send the bytes by an operation of their own")
    name = replay.of
    if replay.lasting in (Lasting.CREATE, Lasting.DESTROY):
        use = Use.CREATE if replay.lasting is Lasting.CREATE else Use.DESTROY
        name = next(a.name for a in variant.args if a.kind is Kind.HANDLE and a.use is use)
    handle = None if name is None or name == "context" else message.place(name)[0]
    context = "WITHOUT"
    if variant.needs in (Needs.CONTEXT, Needs.OWNER):
        # What is no context's (a kernel) is changed in any; the rest in the one that is current.
        of = next((a.of for a in variant.args if a.name == name), ("context",))
        context = (
            "IN_ITS_OWN" if any(kind == "context" or in_context(spec, kind) for kind in of) else "IN_ANY"
        )
    return Kept(message, handle, tuple(map(message.place, replay.by)), context)


def outputs(spec: Spec) -> dict[str, str]:
    sources = ", ".join(library.file for library in spec.libraries)
    found = messages(spec)
    lasting = [k for m in found if (k := kept(spec, m))]
    handlers = [handler(spec, m) for m in found]
    return {
        "apiserver/_generated/messages.pxi": render(
            "server_messages.pxi.j2",
            __file__,
            sources,
            ("# ", ""),
            messages=found,
            spans=max(len(k.by) for k in lasting),
        ),
        "apiserver/_generated/dispatch.pxi": render(
            "server_dispatch.pxi.j2", __file__, sources, ("# ", ""), handlers=handlers, kept=lasting
        ),
    }
