"""What a node of an executable graph is given."""

from __future__ import annotations

import struct
from typing import Any

from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle

GRAPH = handle("graph_exec", 0)


def test_a_fill_becomes_no_kernel(guest: Guest) -> None:
    memory, function = guest.map(), kernels.bind(guest, "scale")
    guest.write(memory, bytes(4))
    rows: dict[str, Any] = {
        "target_pitch": 4,
        "source": 0,
        "source_pitch": 0,
        "width": 1,
        "rows": 1,
        "element": 4,
    }
    guest.send("sessionGraphBegin", exec=GRAPH)
    guest.send("sessionGraphRows", exec=GRAPH, target=memory, value=7, **rows)
    assert guest.call("sessionGraphReady", exec=GRAPH, flags=0).status == 0
    params = struct.pack("<QI", memory, 3)
    launch: dict[str, Any] = {
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "shared": 0,
        "attributes": 0,
        "params": len(params),
    }
    guest.send("sessionGraphSetKernel", exec=GRAPH, node=0, function=function, payload=params, **launch)
    assert guest.sync().latched != 0
    guest.send("sessionGraphLaunch", exec=GRAPH, stream=0)
    assert guest.read(memory, 4) == struct.pack("<I", 7)
    assert guest.sync().latched == 0
    guest.close()
