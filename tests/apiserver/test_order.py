"""What waits for what: streams, fences, copies out, threads of the guest."""

from __future__ import annotations

import struct

import pytest

from tests.apiserver import kernels
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import Server

NOT_READY = 600
PAGE = 2 << 20
ONE = struct.pack("<I", 1)
A, B = handle("stream", 0), handle("stream", 1)


class Gate:
    """A kernel that runs on a stream until it is opened, then adds one to a word."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.kernel = kernels.bind(guest, "wait_for")
        self.flag = guest.map(1, at=0)
        self.word = guest.map(1, at=1)
        for stream in (A, B):
            guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)

    def close(self, stream: int = A) -> None:
        self.guest.launch(
            self.kernel, struct.pack("<QQ", self.flag, self.word), block=(1, 1, 1), stream=stream
        )

    def open(self, stream: int = B) -> None:
        self.guest.write(self.flag, ONE, stream)


@pytest.fixture
def gate(guest: Guest) -> Gate:
    return Gate(guest)


def test_copies_out_follow_the_work_of_their_stream(gate: Gate) -> None:
    gate.close()
    early = gate.guest.ask_read(gate.word, 4, B)
    late = gate.guest.ask_read(gate.word, 4, A)
    assert gate.guest.answer(early).payload == bytes(4)
    gate.open()
    assert gate.guest.answer(late).payload == ONE
    assert gate.guest.order.index(early) < gate.guest.order.index(late)


def test_one_waiting_thread_does_not_hold_up_another(gate: Gate) -> None:
    guest = gate.guest
    gate.close()
    waiting = guest.ask("cuStreamSynchronize", hStream=A)
    everything = guest.ask("cuCtxSynchronize")
    assert guest.call("cuStreamSynchronize", hStream=B).status == 0
    assert guest.call("cuStreamQuery", hStream=A).status == NOT_READY
    assert guest.read(gate.word, 4, B) == bytes(4)
    gate.open()
    assert guest.answer(waiting).status == 0
    assert guest.answer(everything).status == 0
    assert guest.call("cuStreamQuery", hStream=A).status == 0


def test_events_order_streams_and_can_be_waited_for(gate: Gate) -> None:
    guest = gate.guest
    event = handle("event", 0)
    guest.send("cuEventCreate", phEvent=event, Flags=2)
    gate.close()
    guest.send("cuEventRecordWithFlags", hEvent=event, hStream=A, flags=0)
    third = handle("stream", 2)
    guest.send("cuStreamCreateWithPriority", phStream=third, flags=1, priority=0)
    guest.send("cuStreamWaitEvent", hStream=third, hEvent=event, Flags=0)
    after = guest.ask_read(gate.word, 4, third)
    waiting = guest.ask("cuEventSynchronize", hEvent=event)
    assert guest.call("cuEventQuery", hEvent=event).status == NOT_READY
    guest.send("cuEventDestroy_v2", hEvent=event)  # while somebody waits for it
    gate.open()
    assert guest.answer(waiting).status == 0
    assert guest.answer(after).payload == ONE
    assert guest.sync().latched == 0


def test_event_times(guest: Guest) -> None:
    start, end = handle("event", 0), handle("event", 1)
    for event in (start, end):
        guest.send("cuEventCreate", phEvent=event, Flags=0)
        guest.send("cuEventRecordWithFlags", hEvent=event, hStream=0, flags=0)
    assert guest.call("cuEventSynchronize", hEvent=end).status == 0
    reply = guest.call("cuEventElapsedTime_v2", hStart=start, hEnd=end)
    assert reply.status == 0
    assert reply.values["pMilliseconds"] >= 0


def test_a_stream_destroyed_while_it_is_waited_for(gate: Gate) -> None:
    guest = gate.guest
    gate.close()
    data = guest.ask_read(gate.word, 4, A)
    waiting = guest.ask("cuStreamSynchronize", hStream=A)
    guest.send("cuStreamDestroy_v2", hStream=A)
    gate.open()
    assert guest.answer(data).payload == ONE
    assert guest.answer(waiting).status == 0


def test_fence_orders_all_streams(gate: Gate) -> None:
    guest = gate.guest
    gate.close(A)
    guest.send("sessionFence")
    third = handle("stream", 2)
    guest.send("cuStreamCreateWithPriority", phStream=third, flags=1, priority=0)
    behind = guest.ask_read(gate.word, 4, third)
    assert guest.call("cuEventQuery", hEvent=handle("event", 9)).status == 400  # still served
    # B is behind the fence as well, so only what was there before can open the gate: the host cannot.
    server_side = guest.call("cuStreamQuery", hStream=third)
    assert server_side.status == NOT_READY
    assert behind not in guest.order


def test_fence_after_a_stream_is_gone(gate: Gate) -> None:
    guest = gate.guest
    gate.close(A)
    guest.send("cuStreamDestroy_v2", hStream=A)
    gate.open()
    guest.send("sessionFence")
    assert guest.read(gate.word, 4, B) == ONE


def test_no_reply_overtakes_the_data_it_vouches_for(guest: Guest) -> None:
    """Stream B waits for A's event; a reply about B says that A's copies are done too."""
    for stream in (A, B):
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    event = handle("event", 0)
    guest.send("cuEventCreate", phEvent=event, Flags=2)
    address = guest.map(2)
    for _ in range(30):
        copies = [guest.ask_read(address, 1 << 20, A) for _ in range(4)]
        guest.send("cuEventRecordWithFlags", hEvent=event, hStream=A, flags=0)
        guest.send("cuStreamWaitEvent", hStream=B, hEvent=event, Flags=0)
        waited = guest.ask("cuStreamSynchronize", hStream=B)
        guest.answer(waited)
        position = guest.order.index(waited)
        assert all(copy in guest.order[:position] for copy in copies)
        for copy in copies:
            guest.answer(copy)
        guest.order.clear()


def test_a_query_that_says_done_comes_after_the_data(guest: Guest) -> None:
    address = guest.map(2)
    for _ in range(20):
        copy = guest.ask_read(address, 4 << 20)
        while guest.call("cuStreamQuery", hStream=0).status == NOT_READY:
            pass
        assert copy in guest.order
        guest.answer(copy)
        guest.order.clear()


@pytest.mark.system
def test_legacy_copies_in_are_there_for_other_streams(guest: Guest) -> None:
    """As after cuMemcpyHtoD on a device, whose return says that the data has arrived."""
    guest.send("cuStreamCreateWithPriority", phStream=A, flags=1, priority=0)
    address = guest.map(2)
    for turn in range(50):
        data = bytes([turn]) * (4 << 20)
        guest.write(address, data)
        assert guest.read(address, len(data), A) == data


def test_legacy_copies_in_are_there_for_streams_to_come(guest: Guest) -> None:
    """But not what was launched behind them: it may wait for such a stream."""
    address, flag = guest.map(2, at=2), guest.map(1)
    index = [kernel.name for kernel in kernels.load(guest)].index
    slow, wait = handle("kernel", 0), handle("kernel", 1)
    guest.send("sessionGetFunction", function=slow, owner=kernels.LIBRARY, index=index("scale"))
    guest.send("sessionGetFunction", function=wait, owner=kernels.LIBRARY, index=index("wait_for"))
    guest.launch(slow, struct.pack("<QI", address + PAGE, 1), (1 << 19, 1, 1))  # the copy comes after it
    guest.write(address, b"there")
    guest.launch(wait, struct.pack("<QQ", flag, flag + 4), block=(1, 1, 1))
    guest.send("cuStreamCreateWithPriority", phStream=A, flags=1, priority=0)
    assert guest.read(address, 5, A) == b"there"
    guest.write(flag, ONE, A)
    assert guest.sync().status == 0


def test_legacy_and_per_thread_streams(guest: Guest) -> None:
    address = guest.map()
    for turn in range(20):
        guest.write(address, bytes([turn]) * 1000, turn % 3)
        assert guest.read(address, 1000, (turn + 1) % 3) == bytes([turn]) * 1000


@pytest.mark.system
def test_more_under_way_than_staging_holds(server: Server) -> None:
    guest = server.connect()
    address = guest.map(64)
    for offset in range(0, 64 * PAGE, 4 << 20):
        guest.write(address + offset, bytes([offset >> 22]) * (4 << 20))
    requests = []
    for offset in range(0, 64 * PAGE, 4 << 20):
        requests.append(guest.ask_read(address + offset, 4 << 20))
        if len(requests) == 8:  # as many as a guest may have under way
            first = requests.pop(0)
            assert guest.answer(first).payload[:1] == bytes([(offset >> 22) - 7])
    for request in requests:
        assert guest.answer(request).status == 0


def test_many_small_copies(guest: Guest) -> None:
    address = guest.map()
    streams = [0, *(handle("stream", slot) for slot in range(20))]
    for stream in streams[1:]:
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=0, priority=0)
    requests = []
    for i in range(3000):
        stream = streams[i % len(streams)]
        word = address + 4 * (i % 21)
        guest.write(word, struct.pack("<I", i), stream)
        requests.append(guest.ask_read(word, 4, stream))
    for i, request in enumerate(requests):
        assert guest.answer(request).payload == struct.pack("<I", i)


def test_what_kernels_print_comes_before_the_reply_that_vouches_for_them(guest: Guest) -> None:
    kernel = kernels.bind(guest, "speak")
    for turn in range(1, 4):
        guest.launch(kernel, b"", grid=(100, 1, 1), block=(10, 1, 1))
        assert guest.sync().status == 0
        assert guest.output == b"hello\n" * 1000 * turn


def test_unmap_is_deferred_behind_running_work(gate: Gate) -> None:
    guest = gate.guest
    other = guest.map(4, at=2)
    gate.close()
    guest.send("sessionMemUnmap", address=other, size=4 * PAGE)
    assert guest.answer(guest.ask_read(other, 4, B)).status == 1  # gone for new calls at once
    guest.map(4, at=6)
    gate.open()
    assert guest.map(4, at=2) == other
    assert guest.read(other, 64) == bytes(64)
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, 0)
