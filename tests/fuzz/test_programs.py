"""What a hostile guest takes from programs is sound before it is spoilt: it comes as far as theirs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from codegen.model import Class
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, operations
from tests.fuzz.hostile import CONDITIONAL, KERNEL, PAGES, Hostile
from tests.fuzz.programs import Programs

PIECES = 300
# Of what another process has, of which there is none here.
NOBODYS = {"sessionImportFind", "sessionImportMap", "sessionImportEvent", "sessionMemUnmap"}


def play(guest: Guest, programs: Programs) -> Counter[str]:
    """How often each operation was tried; those that are not answered are waited for."""
    tried = Counter[str]()
    for number in range(PIECES):
        for each in programs.conditional(CONDITIONAL) if number % 10 == 0 else programs.piece():
            if each.op in NOBODYS:
                continue
            tried[each.op] += 1
            if operations()[each.op].variant.klass is Class.SYNC:
                guest.call(each.op, payload=each.payload, **each.values)
            else:
                guest.send(each.op, payload=each.payload, **each.values)
    guest.sync()
    return tried


def test_each_operation_succeeds_often(tmp_path: Path) -> None:
    """One time of six at least: some name what is not there any more, or is there already."""
    with Engine(tmp_path / "log") as engine:
        guest = engine.session()
        Hostile(1)._prepare(guest)
        tried = play(guest, Programs(random.Random(1), guest.window, PAGES, KERNEL))
        done = {number: (succeeded, failed) for number, succeeded, failed, *_ in engine.call("calls")}
        found = {op: done[operations()[op].variant.id] for op in tried}
        assert not {op: (yes, no) for op, (yes, no) in found.items() if 5 * yes < no}
        guest.close()
        assert engine.ended()[1]
