"""The differential suite between two versions: the same as natively, but for what one of them lacks."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Mapping

import pytest
from gpuferry.migration.frames import OPERATIONS
from gpuferry.specs._generated import operations

from codegen.emit.releases import needs
from codegen.load import load
from codegen.model import Class
from tests.differential.differences import comparable
from tests.differential.test_programs import built, native, require_device
from tests.helpers import programs
from tests.helpers.monitor import Monitor
from tests.helpers.programs import Program

# Copies, launches, streams, events, modules, errors, memory, both APIs. Release 0.1 has all that they use.
FEW = {
    "events",
    "illegal_address",
    "memsets",
    "symbols",
    "unsupported",
    "vector_add_driver",
    "vector_add_runtime",
}
# Programs that need an operation which no function goes by: without it they fail as they did before it was.
UNNAMED = {"told_by_kernels": "sessionFindMemory"}
LACKING = re.compile(r"(\w+) is not supported")
POOL = "3"  # as many processes as a program has at once: with release 0.1 each has a session of its own
PATIENCE = 60.0  # seconds, with a program that may wait for what is not supported


def case(program: Program) -> object:
    few = program.name in FEW
    marks = [pytest.mark.xdist_group(program.name)] + ([] if few else [pytest.mark.slow])
    return pytest.param(program, id=program.name, marks=marks)


PROGRAMS = [case(program) for program in programs.with_long_ones()]


@functools.cache
def later() -> set[str]:
    """Functions that no program of release 0.1 may count on: they go by what it had not, or are not carried
    now. And operations that it had not and no function goes by.
    """
    spec, added = load(), operations.SPOKEN.keys() - operations.RELEASES[0].spoken.keys()
    found = {symbol for symbol, number in needs(spec) if number in added}
    found |= {name for name in UNNAMED.values() if OPERATIONS[name] in added}
    return found | {v.symbol for v in spec.driver.variants if v.klass is Class.UNSUPPORTED}


def lacking(program: Program, server: Monitor, extra: Mapping[str, str]) -> set[str]:
    """Runs it. Empty: it did what it does natively; else the functions that it was told are not supported,
    for which it may wait in vain.
    """
    require_device(program)
    here = native(program)
    try:
        there = server.run([built(program)], extra={"GPUFERRY_LOG": "info", **extra}, timeout=PATIENCE)
    except subprocess.TimeoutExpired as over:
        if missing := set(LACKING.findall((over.stderr or b"").decode(errors="replace"))):
            return missing
        raise
    mine, reference = (
        comparable(program.name, outcome.stdout, in_any_order=program.sorted_output)
        for outcome in (there, here)
    )
    if (mine, there.status) == (reference, here.status):
        return set()
    missing = set(LACKING.findall(there.stderr))
    if not missing and program.name in UNNAMED:
        return {UNNAMED[program.name]}
    if not missing:
        assert mine == reference, there.stderr
        assert there.status == here.status, there.stderr
    return missing
