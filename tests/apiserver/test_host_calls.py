"""Streams that wait for functions of the program: order, what is refused, moves and guests that are gone."""

from __future__ import annotations

import struct
from typing import Any

from gpuferry.specs._generated import frames

from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle

INVALID_VALUE = 1
STREAM = handle("stream", 0)


def with_stream(engine: Engine) -> Guest:
    guest = engine.session()
    guest.send("cuStreamCreateWithPriority", phStream=STREAM, flags=1, priority=0)
    return guest


def done(guest: Guest, ticket: int) -> None:
    guest.send("sessionHostDone", ticket=ticket)


def ended_well(engine: Engine, guest: Guest) -> None:
    guest.close()
    assert engine.ended()[1]


def test_the_stream_waits_and_copies_behind_it_are_fed(engine: Engine) -> None:
    guest = with_stream(engine)
    address = guest.map()
    guest.write(address, b"before", STREAM)
    before = guest.ask_read(address, 6, STREAM)
    guest.send("sessionHostCall", stream=STREAM, call=7, always=0)
    guest.send("sessionHostCall", stream=STREAM, call=8, always=1)
    after = guest.ask_read(address, 6, STREAM)
    first = guest.host_call()
    assert (first.call, first.status) == (7, 0)
    assert guest.arrived[before].payload == b"before"
    guest.send(
        "sessionHostCopyIn", ticket=first.ticket, address=address, pitch=0, width=6, rows=1, payload=b"behind"
    )
    assert guest.call("cuStreamQuery", hStream=STREAM).status == 600
    done(guest, first.ticket)
    second = guest.host_call()
    assert (second.call, second.status) == (8, 0)
    assert after not in guest.arrived
    done(guest, second.ticket)
    assert guest.answer(after).payload == b"behind"
    ended_well(engine, guest)


def test_tickets_are_believed_only_while_a_stream_waits(engine: Engine) -> None:
    guest = with_stream(engine)
    address = guest.map()
    guest.send("sessionHostCall", stream=STREAM, call=7, always=0)
    ticket = guest.host_call().ticket
    done(guest, ticket + 1)
    done(guest, ticket)
    assert guest.sync().latched == INVALID_VALUE
    guest.send(
        "sessionHostCopyIn", ticket=ticket, address=address, pitch=0, width=6, rows=1, payload=b"behind"
    )
    assert guest.sync().latched == INVALID_VALUE
    assert guest.read(address, 6) == bytes(6)
    ended_well(engine, guest)


def test_what_was_freed_behind_a_copy_is_there_for_it_and_nobody_else(engine: Engine) -> None:
    guest = with_stream(engine)
    address = guest.map()
    here = {"address": address, "pitch": 0, "width": 6, "rows": 1}
    guest.send("sessionHostCall", stream=STREAM, call=7, always=0)
    ticket = guest.host_call().ticket
    guest.send("sessionMemUnmap", address=address, size=guest.granularity)
    guest.send("sessionHostCopyIn", ticket=ticket, **here, payload=b"behind")
    reply = guest.call("sessionHostCopyOut", ticket=ticket, **here)
    assert (reply.latched, reply.payload) == (0, b"behind")
    assert guest.call("sessionCopyOut", stream=STREAM, **here).status == INVALID_VALUE
    done(guest, ticket)
    assert guest.call("cuStreamSynchronize", hStream=STREAM).status == 0
    guest.send("sessionHostCall", stream=STREAM, call=7, always=0)
    ticket = guest.host_call().ticket
    gone = {**here, "address": address + guest.granularity}
    guest.send("sessionHostCopyIn", ticket=ticket, **gone, payload=b"behind")
    reply = guest.call("sessionHostCopyOut", ticket=ticket, **gone)
    assert (reply.latched, reply.status) == (INVALID_VALUE, INVALID_VALUE)
    done(guest, ticket)
    ended_well(engine, guest)


def test_a_graph_asks_at_each_launch_and_its_memory_is_fetched_meanwhile(engine: Engine) -> None:
    guest = with_stream(engine)
    address, graph = guest.map(), handle("graph_exec", 0)
    guest.send("sessionGraphBegin", exec=graph)
    fill: dict[str, Any] = {"target_pitch": 4, "source": 0, "source_pitch": 0, "rows": 1, "element": 4}
    guest.send("sessionGraphRows", exec=graph, target=address, width=1, value=0x2A2A2A2A, **fill)
    guest.send("sessionGraphNode", exec=graph, kind=frames.PlainNode.HOST, subject=9)
    guest.send("sessionGraphEdges", exec=graph, count=1, payload=struct.pack("<II8x", 0, 1))
    assert guest.call("sessionGraphReady", exec=graph, flags=0).status == 0
    for call in (9, 10):
        guest.send("sessionGraphLaunch", exec=graph, stream=STREAM)
        asked = guest.host_call()
        assert (asked.call, asked.status) == (call, 0)
        here = {"address": address, "pitch": 0, "width": 4, "rows": 1}
        assert guest.call("sessionHostCopyOut", ticket=asked.ticket, **here).payload == b"****"
        assert guest.call("sessionHostCopyOut", ticket=asked.ticket + 1, **here).status == INVALID_VALUE
        guest.send("sessionGraphSetNode", exec=graph, node=1, kind=frames.PlainNode.HOST, subject=10)
        done(guest, asked.ticket)
    assert guest.call("cuStreamSynchronize", hStream=STREAM).status == 0
    ended_well(engine, guest)


def test_a_session_is_drained_when_its_functions_have_returned(engine: Engine) -> None:
    guest = with_stream(engine)
    guest.send("sessionHostCall", stream=STREAM, call=7, always=0)
    ticket = guest.host_call().ticket
    assert engine.call("hold", 60.0)
    assert "functions of the program" in engine.call("drain", 0.2)
    engine.call("proceed")
    assert engine.call("hold", 60.0)
    done(guest, ticket)
    assert engine.call("drain", 60.0) == ""
    engine.call("proceed")
    assert guest.sync().status == 0
    ended_well(engine, guest)


def test_a_guest_that_dies_in_a_function_holds_nothing_up(engine: Engine) -> None:
    guest = with_stream(engine)
    for call in range(3):
        guest.send("sessionHostCall", stream=STREAM, call=call, always=call % 2)
    guest.host_call()
    guest.socket.close()
    engine.theirs.close()
    assert engine.ended()[1]
