"""What a driver says on standard error reaches whoever runs the program, natively and through gpuferry."""

from __future__ import annotations

import re

from tests.helpers import programs, toolchain
from tests.helpers.monitor import Monitor
from tests.helpers.running import native_environment, run

REFUSED = [
    "cuGraphInstantiateWithFlags",
    "cuGraphicsUnregisterResource",
    "cuImportExternalMemory",
    "cuStreamBeginRecaptureToGraph",
]
ASSERTIONS = [f"a.cu:12: fail: block: [1,0,0], thread: [{i},0,0] Assertion `i < 6' failed." for i in (2, 3)]


def said(stderr: str) -> list[str]:
    """Lines without who says them."""
    return sorted(re.sub(r"^gpuferry[^:]*: ", "", line) for line in stderr.splitlines())


def test_messages_reach_the_program(shared_monitor: Monitor) -> None:
    program = programs.program("device_messages")
    built = toolchain.program(program.source, program.flags)
    native, remote = run([built], native_environment()), shared_monitor.run([built], "tcp")
    assert (native.status, remote.status) == (0, 0), native.stdout + remote.stdout
    here, there = said(native.stderr), said(remote.stderr)
    assert [line for line in here if "Assertion" in line] == ASSERTIONS
    assert [line for line in there if "Assertion" in line] == ASSERTIONS
    for wanted in ("cannot load a module", "kernel fail: assertion failed"):
        assert any(wanted in line for line in here), native.stderr
        assert any(wanted in line for line in there), remote.stderr
    assert any("no PTX for sm_" in line for line in here), native.stderr
    assert any("no code for this device" in line for line in there), remote.stderr  # the guest saw it
    refusals = [[line for line in lines if line.startswith("cu")] for lines in (here, there)]
    assert refusals[0] == refusals[1]
    assert [line.split()[0].rstrip(":") for line in refusals[0]] == REFUSED, refusals[0]
