"""What ends takes along what it owns, in steps that grow with what goes and not with what stays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apiserver import kernels
from tests.apiserver.engine import Engine
from tests.apiserver.guest import PRIMARY, Guest, handle

SOME, MANY, STAYS = 10, 100, 50
INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE = 1, 201, 400
OTHER, THERE = handle("context", 1), 2  # a context that goes, and how headers name it
LIBRARY, MODULE = handle("library", 9), handle("module", 999)
SILENT = 2  # the kernel `speak`, which takes no parameters
DIGEST = hashlib.sha256(kernels.PTX).digest()


@pytest.fixture
def guest(engine: Engine) -> Iterator[Guest]:
    guest = engine.session()
    guest.send("cuCtxCreate_v2", pctx=OTHER, flags=0, dev=0)
    kernels.load(guest)
    yield guest
    guest.close()
    assert engine.ended() == ("closed", True)


def load(guest: Guest, owner: int, context: int = THERE) -> None:
    reply = guest.call("sessionLoadImage", context=context, hash=DIGEST, handle=owner, size=len(kernels.PTX))
    assert (reply.status, reply.values["known"]) == (0, 1)


def event(guest: Guest, slot: int, context: int = THERE) -> None:
    guest.send("cuEventCreate", context=context, phEvent=handle("event", slot), Flags=0)


def stream(guest: Guest, slot: int) -> None:
    made = handle("stream", slot)
    guest.send("cuStreamCreateWithPriority", context=THERE, phStream=made, flags=1, priority=0)


def module(guest: Guest, slot: int) -> None:
    load(guest, handle("module", slot))
    function: dict[str, Any] = {"owner": handle("module", slot), "function": handle("function", slot)}
    guest.send("sessionGetFunction", context=THERE, index=0, **function)


def function(guest: Guest, slot: int) -> None:
    guest.send("sessionGetFunction", context=THERE, owner=MODULE, function=handle("function", slot), index=0)


def kernel(guest: Guest, slot: int) -> None:
    guest.send("sessionGetFunction", owner=LIBRARY, function=handle("kernel", slot), index=0)


def module_of_library(guest: Guest, slot: int) -> None:
    guest.send("sessionGetModule", context=THERE, library=LIBRARY, module=handle("module", slot))


def bystanders(guest: Guest) -> None:
    """What stays, of every kind that does not end with the other context."""
    for slot in range(5000, 5000 + STAYS):
        event(guest, slot, PRIMARY)
        guest.send("sessionGetFunction", owner=kernels.LIBRARY, function=handle("kernel", slot), index=0)


CASES: dict[str, tuple[Callable[[Guest, int], None], str, dict[str, int]]] = {
    "events of a context": (event, "cuCtxDestroy_v2", {"ctx": OTHER}),
    "streams of a context": (stream, "cuCtxDestroy_v2", {"ctx": OTHER}),
    "modules of a context, with their functions": (module, "cuCtxDestroy_v2", {"ctx": OTHER}),
    "functions of a module": (function, "cuModuleUnload", {"hmod": MODULE}),
    "kernels of a library": (kernel, "cuLibraryUnload", {"library": LIBRARY}),
    "a library's modules, with the library": (module_of_library, "cuLibraryUnload", {"library": LIBRARY}),
    "a library's modules, with the context": (module_of_library, "cuCtxDestroy_v2", {"ctx": OTHER}),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_grow_with_what_goes(engine: Engine, guest: Guest, case: str) -> None:
    make, op, owner = CASES[case]
    took: list[int] = []
    for count, others in ((SOME, 0), (SOME, STAYS), (MANY, STAYS)):
        if others and len(took) == 1:
            bystanders(guest)
        load(guest, LIBRARY, PRIMARY)
        load(guest, MODULE)
        for slot in range(count):
            make(guest, slot)
        assert guest.sync().latched == 0
        before = engine.call("steps")
        assert guest.call(op, **owner).status == 0
        took.append(engine.call("steps") - before)
        # From here on everything is as if it had never been.
        guest.send("cuCtxDestroy_v2", ctx=OTHER)
        guest.send("cuLibraryUnload", library=LIBRARY)
        assert guest.sync().latched in (0, INVALID_CONTEXT, INVALID_HANDLE)
        guest.send("cuCtxCreate_v2", pctx=OTHER, flags=0, dev=0)
    few, few_among_others, many = took
    assert few_among_others == few, "what stays was looked at"
    assert many <= few + 2 * (MANY - SOME), "more than what goes was looked at"


def test_the_end_of_a_session_looks_at_everything_once(engine: Engine) -> None:
    guest = engine.session()
    guest.send("cuCtxCreate_v2", pctx=OTHER, flags=0, dev=0)
    kernels.load(guest)
    load(guest, LIBRARY, PRIMARY)
    for slot in range(MANY):
        event(guest, slot)
        kernel(guest, slot)
        module(guest, slot)
    assert guest.sync().latched == 0
    before = engine.call("steps")
    guest.close()
    assert engine.ended() == ("closed", True)
    assert engine.call("steps") - before == 4 * MANY + 2  # libraries


def test_a_context_ends_without_a_look_at_the_others(engine: Engine) -> None:
    """Neither when one begins: 20,000 of them took half a minute to make, and ten seconds to end."""
    guest = engine.session()
    before = engine.call("steps")
    for slot in range(1, STAYS):
        guest.send("cuCtxCreate_v2", pctx=handle("context", slot), flags=0, dev=0)
    assert guest.sync().latched == 0
    for slot in (STAYS - 1, 1, STAYS // 2):
        assert guest.call("cuCtxDestroy_v2", ctx=handle("context", slot)).status == 0
    assert engine.call("steps") == before
    guest.close()
    assert engine.ended() == ("closed", True)


@pytest.mark.parametrize("context_first", [True, False])
def test_a_module_of_a_library_ends_with_whichever_goes_first(guest: Guest, context_first: bool) -> None:
    load(guest, LIBRARY, PRIMARY)
    module_of_library(guest, 0)
    guest.send(
        "sessionGetFunction",
        context=THERE,
        owner=handle("module", 0),
        function=handle("function", 0),
        index=0,
    )
    assert guest.sync().latched == 0
    ends = [("cuCtxDestroy_v2", {"ctx": OTHER}), ("cuLibraryUnload", {"library": LIBRARY})]
    for op, values in ends if context_first else reversed(ends):
        assert guest.call(op, **values).status == 0
        gone = guest.call(
            "sessionGetFunction", owner=handle("module", 0), function=handle("function", 1), index=0
        )
        assert gone.status == INVALID_HANDLE
    load(guest, handle("module", 0), PRIMARY)


def launched(guest: Guest, slot: int, context: int) -> int:
    """What becomes of a launch that writes nothing."""
    launch: dict[str, Any] = {
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "shared": 0,
        "stream": 0,
        "attributes": 0,
        "params": 0,
    }
    guest.send("sessionLaunch", context=context, function=handle("kernel", slot), **launch)
    return guest.sync().latched


def test_a_kernel_may_go_before_or_after_the_contexts_in_which_it_was_used(guest: Guest) -> None:
    load(guest, LIBRARY, PRIMARY)
    for slot in range(4):
        owner = LIBRARY if slot < 3 else kernels.LIBRARY
        get = {"owner": owner, "function": handle("kernel", slot), "index": SILENT}
        assert guest.call("sessionGetFunction", **get).status == 0
        assert launched(guest, slot, THERE) == 0
    assert launched(guest, 1, PRIMARY) == 0  # the list of the other context is left in its middle
    assert guest.call("cuLibraryUnload", library=LIBRARY).status == 0
    assert [launched(guest, slot, THERE) for slot in range(4)] == [INVALID_HANDLE] * 3 + [0]
    assert guest.call("cuCtxDestroy_v2", ctx=OTHER).status == 0
    assert launched(guest, 3, PRIMARY) == 0
    guest.send("cuCtxCreate_v2", pctx=OTHER, flags=0, dev=0)
    assert launched(guest, 3, THERE) == 0


def test_variables_go_with_what_handed_them_out(guest: Guest) -> None:
    load(guest, LIBRARY, PRIMARY)
    found = {}
    for owner in (kernels.LIBRARY, LIBRARY, LIBRARY):
        reply = guest.call("sessionGetGlobal", owner=owner, payload=b"variable")
        found[owner] = reply.values["address"], reply.values["size"]
    (kept, size), (gone, _) = found[kernels.LIBRARY], found[LIBRARY]
    assert guest.read(gone, size) == guest.read(kept, size) != bytes(size)
    assert guest.call("cuLibraryUnload", library=LIBRARY).status == 0
    copy = {"stream": 0, "pitch": 0, "width": size, "rows": 1}
    assert guest.call("sessionCopyOut", address=gone, **copy).status == INVALID_VALUE
    assert guest.call("sessionCopyOut", address=kept + 1, **copy).status == INVALID_VALUE
    assert guest.read(kept, size) != bytes(size)
