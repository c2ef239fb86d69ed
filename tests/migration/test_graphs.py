"""Executable graphs with nodes that name what has ended: they move, with what nodes were made of since."""

from __future__ import annotations

import hashlib
import struct
import time
from typing import Any

from gpuferry.specs._generated.frames import PlainNode

from tests.apiserver import arrays
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server
from tests.migration.moving import close, move, settled

GRAPH = handle("graph_exec", 0)
ROW = bytes(range(64))
PTX = b".version 7.5 .target sm_80 .address_size 64 .global .align 4 .u32 word; .entry none() { ret; }\0"


def fill(address: int, value: int) -> dict[str, Any]:
    """Of a word."""
    rows = {"target_pitch": 4, "source": 0, "source_pitch": 0, "width": 1, "rows": 1, "element": 4}
    return {"target": address, "value": value, **rows}


def copy_to(array: int, address: int) -> dict[str, Any]:
    """A row."""
    to = {"target_x": 0, "target_y": 0, "target_z": 0, "target_pitch": 0, "target_height": 0}
    of = {"source_x": address, "source_y": 0, "source_z": 0, "source_pitch": len(ROW), "source_height": 1}
    size = {"width": len(ROW), "rows": 1, "layers": 1}
    return {"target_array": array, "source_array": 0, **to, **of, **size}


def ready(guest: Guest) -> None:
    assert guest.call("sessionGraphReady", exec=GRAPH, flags=0).status == 0


def switch(guest: Guest, node: int, kind: PlainNode) -> None:
    guest.send("sessionGraphSetNode", exec=GRAPH, node=node, kind=kind, subject=0)


def filled(guest: Guest, address: int) -> tuple[int, ...]:
    """Three words, after a launch."""
    guest.write(address, bytes(12))
    guest.send("sessionGraphLaunch", exec=GRAPH, stream=0)
    words = struct.unpack("<3I", guest.read(address, 12))
    assert guest.sync().latched == 0
    return words


def test_fills_of_memory_that_was_unmapped(source: Server, destination: Server) -> None:
    """One is led to other memory before the move, one after it; that between them is switched off and on."""
    guest = source.connect()
    kept, gone = guest.map(), guest.map(at=1)
    guest.send("sessionGraphBegin", exec=GRAPH)
    for address in (gone, kept + 4, gone):
        guest.send("sessionGraphRows", exec=GRAPH, **fill(address, 1))
    guest.send("sessionGraphEdges", exec=GRAPH, count=2, payload=struct.pack("<II8xII8x", 0, 1, 1, 2))
    ready(guest)
    guest.send("sessionGraphSetRows", exec=GRAPH, node=0, **fill(kept, 7))
    switch(guest, 1, PlainNode.DISABLE)
    guest.send("sessionMemUnmap", address=gone, size=guest.granularity)
    assert guest.sync().latched == 0
    settled(source, destination, move(source, destination, guest.session))
    guest.send("sessionGraphSetRows", exec=GRAPH, node=2, **fill(kept + 8, 9))
    assert filled(guest, kept) == (7, 0, 9)
    switch(guest, 1, PlainNode.ENABLE)
    assert filled(guest, kept) == (7, 1, 9)
    settled(destination, source, move(destination, source, guest.session))
    assert filled(guest, kept) == (7, 1, 9)
    close(guest, source)


def test_a_fill_of_what_only_a_kernel_told(source: Server, destination: Server) -> None:
    """Other code is unloaded since, so the guest has looked for the address again."""
    guest, code, other = source.connect(), handle("module", 0), handle("module", 1)
    digest = hashlib.sha256(PTX).digest()

    def load(module: int) -> None:
        assert guest.load(PTX, module, digest)[0].status == 0

    load(code)
    address = guest.call("sessionGetGlobal", owner=code, payload=b"word").values["address"]
    guest.send("cuModuleUnload", hmod=code)
    load(code)
    assert guest.call("sessionFindMemory", address=address).status == 0
    guest.send("sessionGraphBegin", exec=GRAPH)
    guest.send("sessionGraphRows", exec=GRAPH, **fill(address, 7))
    ready(guest)
    load(other)
    guest.send("cuModuleUnload", hmod=other)
    assert guest.call("sessionFindMemory", address=address).status == 0
    settled(source, destination, move(source, destination, guest.session))
    guest.send("sessionGraphLaunch", exec=GRAPH, stream=0)
    assert guest.read(address, 4) == struct.pack("<I", 7)
    close(guest, destination)


def test_an_event_that_a_graph_records_no_more(source: Server, destination: Server) -> None:
    """A launch leaves it as it was, also what is known of it since before a move."""
    guest = source.connect()
    old, new, now = (handle("event", i) for i in range(3))
    for event in (old, new, now):
        guest.send("cuEventCreate", phEvent=event, Flags=0)
    guest.send("sessionGraphBegin", exec=GRAPH)
    guest.send("sessionGraphNode", exec=GRAPH, kind=PlainNode.RECORD, subject=old)
    ready(guest)
    guest.send("sessionGraphSetNode", exec=GRAPH, node=0, kind=PlainNode.RECORD, subject=new)
    guest.send("cuEventRecordWithFlags", hEvent=old, hStream=0, flags=0)
    assert guest.sync().latched == 0
    time.sleep(0.2)
    settled(source, destination, move(source, destination, guest.session))
    guest.send("sessionGraphLaunch", exec=GRAPH, stream=0)
    guest.send("cuEventRecordWithFlags", hEvent=now, hStream=0, flags=0)
    assert guest.sync().latched == 0
    assert guest.call("cuEventQuery", hEvent=new).status == 0
    elapsed = guest.call("cuEventElapsedTime_v2", hStart=old, hEnd=now)
    assert elapsed.status == 0
    assert elapsed.values["pMilliseconds"] >= 200
    close(guest, destination)


def test_a_copy_into_an_array_that_was_destroyed(source: Server, destination: Server) -> None:
    guest, gone, kept = source.connect(), handle("array", 0), handle("array", 1)
    memory = guest.map()
    guest.write(memory, ROW)
    for array in (gone, kept):
        arrays.create(guest, array)
    guest.send("sessionGraphBegin", exec=GRAPH)
    guest.send("sessionGraphBox", exec=GRAPH, **copy_to(gone, memory))
    ready(guest)
    guest.send("sessionGraphSetBox", exec=GRAPH, node=0, **copy_to(kept, memory))
    guest.send("cuArrayDestroy", hArray=gone)
    assert guest.sync().latched == 0
    settled(source, destination, move(source, destination, guest.session))
    guest.send("sessionGraphLaunch", exec=GRAPH, stream=0)
    found = guest.call("sessionArrayOut", stream=0, array=kept, x=0, y=0, z=0, width=len(ROW), rows=1)
    assert (found.status, found.payload) == (0, ROW)
    close(guest, destination)
