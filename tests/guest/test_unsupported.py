"""What the server hears of functions that are not supported: every call, but not one frame for each."""

from __future__ import annotations

import struct

import pytest

from codegen.load import load
from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer

SPEC = load()
IDS = {variant.symbol: variant.id for variant in SPEC.driver.variants}


def told(server: FakeServer) -> list[tuple[int, int]]:
    return [struct.unpack("<II", f.body) for f in server.frames if f.name == "sessionUnsupported"]


@pytest.mark.sanitize
def test_the_first_call_at_once_the_rest_ever_more_rarely(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
graph = u64()
ok("cuCtxSynchronize")
print({cu("cuStreamBeginRecaptureToGraph", None, 0, graph, None, None) for _ in range(100)})
ok("cuCtxSynchronize")
"""
    )
    assert outcome.stdout == "{801}\n"
    assert server.names[1] == "sessionUnsupported"
    assert told(server) == [
        (IDS["cuStreamBeginRecaptureToGraph"], calls) for calls in (1, 1, 2, 4, 8, 16, 32, 36)
    ]
    assert server.names[-2:] == ["sessionUnsupported", "sessionClose"]


def test_calls_before_the_session_are_told_at_its_end(server: FakeServer, guest: Guest) -> None:
    guest(
        """
cu("cuStreamBeginRecaptureToGraph", None, 0, None, None, None)
start()
ok("cuCtxSynchronize")
"""
    )
    assert told(server) == [(IDS["cuStreamBeginRecaptureToGraph"], 1)]


def test_it_is_told_in_no_context(server: FakeServer, guest: Guest) -> None:
    """The server would hold it against the program that its context is gone."""
    guest('start(); cu("cuStreamBeginRecaptureToGraph", None, 0, None, None, None); ok("cuCtxSynchronize")')
    contexts = [f.context for f in server.frames if f.name in ("sessionUnsupported", "cuCtxSynchronize")]
    assert contexts == [0, 1]


def test_what_is_refused_is_named_once(server: FakeServer, guest: Guest) -> None:
    outcome = guest(
        """
start()
out, words = u64(), (u64 * 32)()
for _ in range(3):
    assert cu("cuImportExternalMemory", byref(out), words) == 801
    assert cu("cuGraphicsUnregisterResource", 0) == 400
    assert cu("cuMulticastCreate", byref(out), words) == 801
    assert cu("cuGraphInstantiateWithFlags", byref(out), made("cuGraphCreate", 0), 4) == 801
ok("cuCtxSynchronize")
"""
    )
    said = [line.split(": ", 1)[1] for line in outcome.stderr.splitlines()]
    assert [line.split(":")[0] for line in said] == [
        "cuImportExternalMemory is not supported",
        "cuGraphicsUnregisterResource is not supported",
        "cuGraphInstantiateWithFlags",
    ]
    assert said[0].endswith(SPEC.by_symbol["cuImportExternalMemory"].why or "")
    assert {function for function, _ in told(server)} == {
        IDS[name] for name in ("cuImportExternalMemory", "cuGraphicsUnregisterResource")
    }
    assert sum(calls for _, calls in told(server)) == 6


def test_what_is_supported_is_not_told(server: FakeServer, guest: Guest) -> None:
    guest('start(); made("cuEventCreate", 0); ok("cuCtxSynchronize")')
    assert told(server) == []
