"""The window: mapping, quota, clearing, and what a call may touch."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from tests.apiserver import kernels
from tests.apiserver.engine import Engine
from tests.apiserver.guest import Guest, handle
from tests.apiserver.server import GIB, Server

PAGE = 2 << 20
NOT_FOUND = 500
INVALID_VALUE, OUT_OF_MEMORY, ALREADY_MAPPED, NOT_READY = 1, 2, 208, 600


def status(guest: Guest, op: str, **values: int) -> int:
    return guest.call(op, **values).status


def fill(guest: Guest, address: int, value: int, size: int) -> int:
    return status(
        guest, "sessionFill", stream=0, address=address, pitch=0, width=size, rows=1, value=value, element=1
    )


def test_what_is_written_is_read(guest: Guest) -> None:
    address = guest.map(3)
    data = bytes(i * 7 & 0xFF for i in range(3 * PAGE))
    guest.write(address, data[: 4 << 20])
    guest.write(address + (4 << 20), data[4 << 20 :])
    assert guest.read(address, 4 << 20) + guest.read(address + (4 << 20), 2 << 20) == data


def test_rows(guest: Guest) -> None:
    address = guest.map()
    guest.send(
        "sessionCopyIn",
        stream=0,
        address=address,
        pitch=16,
        width=4,
        rows=3,
        payload=b"aaaabbbbcccc",
    )
    assert guest.read(address, 48) == b"aaaa" + bytes(12) + b"bbbb" + bytes(12) + b"cccc" + bytes(12)
    guest.send(
        "sessionCopy",
        stream=0,
        target=address + 4096,
        target_pitch=8,
        source=address,
        source_pitch=16,
        width=4,
        rows=3,
    )
    reply = guest.call("sessionCopyOut", stream=0, address=address + 4096, pitch=8, width=4, rows=3)
    assert reply.payload == b"aaaabbbbcccc"
    guest.send("sessionFill", stream=0, address=address, pitch=16, width=2, rows=2, value=0x5A5B, element=2)
    assert guest.read(address, 20) == b"[Z[Z" + bytes(12) + b"[Z[Z"


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (1, PAGE),
        (0, PAGE + 1),
        (0, 0),
        (-PAGE, PAGE),
        (1 << 63, PAGE),
        (0, 1 << 63),
        (PAGE, (1 << 64) - PAGE),
    ],
)
def test_impossible_maps_are_refused(guest: Guest, offset: int, size: int) -> None:
    address = (guest.window + offset) % (1 << 64)
    assert status(guest, "sessionMemMap", address=address, size=size) == INVALID_VALUE
    assert status(guest, "sessionMemUnmap", address=address, size=size) == INVALID_VALUE
    assert guest.sync().status == 0


def test_end_of_the_window(guest: Guest) -> None:
    last = guest.window + guest.window_size - PAGE
    assert status(guest, "sessionMemMap", address=last, size=PAGE) == 0
    assert fill(guest, last, 1, PAGE) == 0
    assert fill(guest, last, 1, PAGE + 1) == INVALID_VALUE
    assert status(guest, "sessionMemMap", address=last, size=2 * PAGE) == INVALID_VALUE


def test_quota(server: Server) -> None:
    guest = server.connect(quota=4 * PAGE)
    assert status(guest, "sessionMemMap", address=guest.window, size=3 * PAGE) == 0
    more = guest.window + 3 * PAGE
    assert status(guest, "sessionMemMap", address=more, size=2 * PAGE) == OUT_OF_MEMORY
    assert status(guest, "sessionMemMap", address=more, size=PAGE) == 0
    assert status(guest, "sessionMemMap", address=more + PAGE, size=PAGE) == OUT_OF_MEMORY
    assert status(guest, "sessionMemUnmap", address=guest.window, size=3 * PAGE) == 0
    assert status(guest, "sessionMemMap", address=more + PAGE, size=3 * PAGE) == 0


def test_the_device_runs_out(server: Server) -> None:
    guest = server.connect(quota=1 << 50)
    total = guest.device.total_memory
    size = (total // PAGE + 1) * PAGE
    assert status(guest, "sessionMemMap", address=guest.window, size=size) == OUT_OF_MEMORY
    assert status(guest, "sessionMemMap", address=guest.window, size=PAGE) == 0


def test_a_failed_map_is_latched_and_reported_once(guest: Guest) -> None:
    guest.send("sessionMemMap", address=0, size=PAGE)
    guest.send("sessionMemUnmap", address=guest.window, size=PAGE)
    reply = guest.sync()
    assert (reply.status, reply.latched, reply.latched_op) == (0, INVALID_VALUE, 2)
    assert guest.sync().latched == 0


def test_double_map_and_double_unmap(guest: Guest) -> None:
    address = guest.map(2)
    assert status(guest, "sessionMemMap", address=address, size=PAGE) == ALREADY_MAPPED
    assert status(guest, "sessionMemMap", address=address + PAGE, size=2 * PAGE) == ALREADY_MAPPED
    assert status(guest, "sessionMemUnmap", address=address, size=PAGE) == INVALID_VALUE  # part of a map
    assert status(guest, "sessionMemUnmap", address=address + PAGE, size=PAGE) == INVALID_VALUE
    assert status(guest, "sessionMemUnmap", address=address, size=2 * PAGE) == 0
    assert status(guest, "sessionMemUnmap", address=address, size=2 * PAGE) == INVALID_VALUE


def test_one_unmap_covers_several_maps(guest: Guest) -> None:
    address = guest.map(1, at=0)
    guest.map(2, at=1)
    assert fill(guest, address, 9, 3 * PAGE) == 0  # a range may span maps
    assert status(guest, "sessionMemUnmap", address=address, size=3 * PAGE) == 0
    assert fill(guest, address, 9, 1) == INVALID_VALUE


def test_remapped_memory_is_zero(guest: Guest) -> None:
    for _ in range(5):
        address = guest.map(2)
        assert guest.read(address, 2 * PAGE) == bytes(2 * PAGE)
        assert fill(guest, address, 0xFF, 2 * PAGE) == 0
        guest.send("sessionMemUnmap", address=address, size=2 * PAGE)


def test_new_memory_is_zero_on_every_stream(guest: Guest) -> None:
    streams = [handle("stream", slot) for slot in range(8)]
    for stream in streams:
        guest.send("cuStreamCreateWithPriority", phStream=stream, flags=1, priority=0)
    for turn in range(4):
        address = guest.map(8, at=8 * turn)
        requests = [guest.ask_read(address + i * PAGE, PAGE, stream) for i, stream in enumerate(streams)]
        assert all(guest.answer(request).payload == bytes(PAGE) for request in requests)
        assert fill(guest, address, 0xFF, 8 * PAGE) == 0


def test_memory_is_zero_for_the_next_session(server: Server) -> None:
    for _ in range(2):
        guest = server.connect()
        address = guest.map(64)
        for chunk in range(0, 64 * PAGE, 4 << 20):
            assert guest.read(address + chunk, 4 << 20) == bytes(4 << 20)
        assert fill(guest, address, 0xA5, 64 * PAGE) == 0
        assert guest.sync().status == 0
        guest.close()
        assert server.ended().clean
        server.ready()


@pytest.mark.parametrize("address", [0, 0x1000, 1 << 40, (1 << 64) - 4096])
def test_addresses_outside_the_window(guest: Guest, address: int) -> None:
    guest.map()
    assert fill(guest, address, 1, 4096) == INVALID_VALUE
    answer = guest.answer(guest.ask_read(address, 4096))
    assert (answer.status, answer.payload) == (INVALID_VALUE, b"")
    guest.write(address, bytes(4096))
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, INVALID_VALUE)


def test_unmapped_parts_of_the_window(guest: Guest) -> None:
    address = guest.map(1, at=4)
    assert fill(guest, address - 1, 1, 2) == INVALID_VALUE
    assert fill(guest, address + PAGE - 1, 1, 2) == INVALID_VALUE
    assert fill(guest, address, 1, PAGE) == 0


@pytest.mark.parametrize(
    ("pitch", "width", "rows"),
    [
        (1 << 40, 16, 1 << 40),
        ((1 << 64) - 16, 16, 2),
        (8, 16, 2),
        (PAGE, 16, 2),
        (16, 1 << 63, 2),
        (16, 16, (1 << 64) - 1),
    ],
)
def test_sizes_that_overflow_or_leave_the_map(guest: Guest, pitch: int, width: int, rows: int) -> None:
    address = guest.map()
    shape = {"stream": 0, "width": width, "rows": rows}
    assert (
        status(guest, "sessionFill", address=address, pitch=pitch, value=0, element=4, **shape)
        == INVALID_VALUE
    )
    copy = {"target": address, "target_pitch": pitch, "source": address, "source_pitch": 16}
    assert status(guest, "sessionCopy", **copy, **shape) == INVALID_VALUE


def test_module_variables_may_be_copied_once_handed_out(guest: Guest) -> None:
    kernels.load(guest)
    reply = guest.call("sessionGetGlobal", owner=kernels.LIBRARY, payload=b"variable")
    address, size = reply.values["address"], reply.values["size"]
    assert size == 16
    assert guest.read(address, 16) == b"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0"
    assert guest.answer(guest.ask_read(address, 17)).status == INVALID_VALUE
    assert guest.answer(guest.ask_read(address - 1, 2)).status == INVALID_VALUE
    guest.send("cuLibraryUnload", library=kernels.LIBRARY)
    assert guest.answer(guest.ask_read(address, 16)).status == INVALID_VALUE


def test_what_a_kernel_told_may_be_copied_once_it_was_looked_for(guest: Guest) -> None:
    """Until code goes: then something else may be there."""
    module = handle("module", 0)
    assert guest.load(kernels.PTX, module, kernels.digest())[0].status == 0
    address = guest.call("sessionGetGlobal", owner=module, payload=b"variable").values["address"]
    guest.send("cuModuleUnload", hmod=module)
    assert guest.load(kernels.PTX, module, kernels.digest())[0].status == 0
    assert guest.answer(guest.ask_read(address, 16)).status == INVALID_VALUE
    found = guest.call("sessionFindMemory", address=address + 4)
    assert (found.status, found.values) == (0, {"base": address, "size": 16})
    assert guest.read(address, 16) == b"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0"
    assert guest.answer(guest.ask_read(address, 17)).status == INVALID_VALUE
    guest.send("cuModuleUnload", hmod=module)
    assert guest.answer(guest.ask_read(address, 16)).status == INVALID_VALUE


def test_what_a_kernel_told_stays_when_other_code_goes(guest: Guest) -> None:
    """A thread may be about to copy there while another one unloads what has nothing to do with it."""
    module, other = handle("module", 0), handle("module", 1)
    assert guest.load(kernels.PTX, module, kernels.digest())[0].status == 0
    address = guest.call("sessionGetGlobal", owner=module, payload=b"variable").values["address"]
    guest.send("cuModuleUnload", hmod=module)
    for each in (module, other):
        assert guest.load(kernels.PTX, each, kernels.digest())[0].status == 0
    assert guest.call("sessionFindMemory", address=address).status == 0
    guest.send("cuModuleUnload", hmod=other)
    assert guest.read(address, 4) == b"\1\0\0\0"
    guest.send("cuModuleUnload", hmod=module)
    assert guest.answer(guest.ask_read(address, 4)).status == INVALID_VALUE


def test_nothing_but_the_memory_of_code_is_found(guest: Guest) -> None:
    kernels.load(guest)
    mapped = guest.map()
    for address in (0, 8, mapped, mapped + PAGE, (1 << 64) - 1):
        assert guest.call("sessionFindMemory", address=address).status == NOT_FOUND, hex(address)


@pytest.mark.system
def test_an_unmap_waits_for_the_work_before_it(server: Server) -> None:
    guest = server.connect(quota=8 * GIB)
    address = guest.map(64)
    for _ in range(4):
        guest.send(
            "sessionFill",
            stream=0,
            address=address,
            pitch=0,
            width=64 * PAGE,
            rows=1,
            value=1,
            element=1,
        )
        guest.send("sessionMemUnmap", address=address, size=64 * PAGE)
        guest.send("sessionMemMap", address=address, size=64 * PAGE)
        assert guest.read(address, 4096) == bytes(4096)
    reply = guest.sync()
    assert (reply.status, reply.latched) == (0, 0)


def test_the_servers_own_memory_is_out_of_reach(server: Server) -> None:
    """The driver knows some of it (pinned staging) and would copy it: only the server's own check refuses."""
    guest = server.connect()
    guest.write(guest.map(), bytes(PAGE))  # staging is in use
    maps = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    starts = [int(line.partition("-")[0], 16) for line in maps if " rw" in line]
    answers = [guest.answer(guest.ask_read(start, 4096)) for start in starts]
    mapped = [a for a in answers if a.status == 0]
    assert len(answers) > 10
    assert len(mapped) <= 1  # the window's page


class Busy:
    """A session that has all of its quota, and may be using it: a stream waits."""

    stream = handle("stream", 0)

    def __init__(self, guest: Guest, pages: int = 2) -> None:
        self.guest = guest
        self.pages = pages
        self.flag = guest.map(1, at=0)
        guest.send("cuStreamCreateWithPriority", phStream=self.stream, flags=1, priority=0)

    def launch(self) -> None:
        """What does not end before the flag is set."""
        self.large = self.guest.map(self.pages, at=1)
        kernel = kernels.bind(self.guest, "wait_for")
        parameters = struct.pack("<QQ", self.flag, self.flag + 4)
        self.guest.launch(kernel, parameters, block=(1, 1, 1), stream=self.stream)
        assert status(self.guest, "cuStreamQuery", hStream=self.stream) == NOT_READY

    def unmap(self) -> None:
        assert status(self.guest, "sessionMemUnmap", address=self.large, size=self.pages * PAGE) == 0

    def ask_map(self) -> int:
        size = self.pages * PAGE
        return self.guest.ask("sessionMemMap", address=self.large + 2 * size, size=size)


def test_what_goes_behind_work_counts_until_it_has_gone(engine: Engine) -> None:
    """Else a kernel that runs is enough to take all of the device, a quota at a time. Whoever frees and
    allocates behind work waits for it.
    """
    busy = Busy(engine.session(quota=3 * PAGE))
    assert busy.guest.sync().status == 0
    with mmap.mmap(engine.physical(busy.flag), PAGE) as flag:
        busy.launch()
        busy.unmap()
        asked = busy.ask_map()
        busy.guest.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            busy.guest.answer(asked)
        busy.guest.socket.settimeout(120)
        flag[0] = 1
    assert busy.guest.answer(asked).status == 0
    assert busy.guest.sync().status == 0
    busy.guest.close()
    assert engine.ended()[1]


def test_who_vanishes_while_it_waits_for_memory_is_gone(own_server: Server) -> None:
    busy = Busy(own_server.connect(quota=3 * PAGE))
    busy.launch()
    busy.unmap()
    busy.ask_map()
    busy.guest.socket.close()
    assert not own_server.ended().clean


@pytest.mark.parametrize(("quota", "pages"), [(3 * PAGE, 2), (8 * GIB, 70)], ids=["quota", "device"])
def test_behind_a_function_of_the_program_nothing_waits_that_hears_of_its_end(
    engine: Engine, quota: int, pages: int
) -> None:
    """It is refused, whether quota or device has no more, and served when the function has returned."""
    guest = engine.session(quota)
    guest.socket.settimeout(20)
    busy = Busy(guest, pages)
    busy.large = guest.map(pages, at=1)
    assert guest.call("sessionHostCall", stream=busy.stream, call=1, always=0).status == 0
    ticket = guest.host_call().ticket
    busy.unmap()
    assert guest.answer(busy.ask_map()).status == OUT_OF_MEMORY
    assert guest.call("sessionHostDone", ticket=ticket).status == 0
    assert guest.sync().status == 0
    assert guest.answer(busy.ask_map()).status == 0
    guest.close()
    assert engine.ended()[1]
