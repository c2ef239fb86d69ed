"""More programs than a device holds: the monitor sends idle sessions' memory away, and brings it back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import PIPE

import grpc
import pytest
from gpuferry.monitor.cli.errors import Exit
from gpuferry.specs._generated import control_pb2

from tests.helpers.monitor import Monitor, monitor
from tests.helpers.running import guest_environment
from tests.helpers.warm import CLI, Popen
from tests.ipc.members import program
from tests.migration.gate import attempts
from tests.residency.lodgers import MIB, Lodger, Operator, lodgers

DEVICE = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB", "GPUFERRY_SIM_DIRTY": "1"}


# Who leaves is chosen by what API servers say, which takes longer on a busy machine; and where one takes too
# long to leave, another one is sent away as well.
PATIENT = {
    "gpuferry.monitor.residency.steward:ASK_SECONDS": 20.0,
    "gpuferry.monitor.residency.orders:IN_LINE_SECONDS": 60.0,
}


@contextlib.contextmanager
def crowded(
    *options: str,
    memory: str = "128MiB",
    times: str = "4",
    pool: int = 3,
    constants: Mapping[str, float] | None = None,
    **more: str,
) -> Iterator[tuple[Monitor, Operator]]:
    environment = DEVICE | {"GPUFERRY_SIM_MEMORY": memory} | more
    flags = ("--pool", str(pool), "--oversubscribe", times, *options)
    patient = PATIENT | dict(constants or {})
    with monitor(*flags, environment=environment, constants=patient) as server:
        operator = Operator(server)
        try:
            yield server, operator
        finally:
            operator.close()


@pytest.mark.system
def test_an_operator_sends_away_and_calls_back() -> None:
    with crowded(times="1") as (server, operator), lodgers(server, [32 * MIB]) as (one,):
        one.ready()
        number = operator.session().id
        assert operator.where(number) == "resident"
        told = operator.evict(number)
        assert (told.bytes, told.copied_bytes) == (32 * MIB, 32 * MIB)
        found = operator.session()
        assert (operator.where(number), found.memory_mapped, found.copy_bytes) == ("host", 32 * MIB, 32 * MIB)
        operator.recall(number)
        assert operator.where(number) == "resident"
        assert operator.evict(number).copied_bytes == 0
        one.work()
        operator.until_at("resident")
        one.finish()
        operator.until_none_is_left()


@pytest.mark.system
def test_idle_ones_make_room() -> None:
    """Three that have 64 MiB each, of 128: whoever was used longest ago is away."""
    with crowded() as (server, operator), lodgers(server, [64 * MIB] * 3) as programs:
        for one in programs:
            one.ready()
        operator.until_at("host", "resident", "resident")
        for _ in range(3):
            for one in programs:
                one.work()
        for one in programs:
            one.finish()
        operator.until_none_is_left()


@pytest.mark.system
def test_all_work_at_once() -> None:
    """16 programs of 16 MiB on a device of 160, each of which works without a pause, and each right."""
    with crowded(memory="160MiB", times="2", pool=16) as (server, operator):
        with lodgers(server, [16 * MIB] * 16, "4") as programs:
            for one in programs:
                one.finish()
        operator.until_none_is_left()


def test_a_program_that_is_alone_never_leaves() -> None:
    with crowded(times="2", pool=1) as (server, operator), lodgers(server, [96 * MIB]) as (one,):
        one.ready()
        for _ in range(3):
            one.work()
        number = operator.session().id
        assert operator.where(number) == "resident"
        one.finish()
        assert "left its device" not in server.log.read_text()


def test_full_host_memory_and_a_full_disk_are_refusals(tmp_path: Path) -> None:
    options = ("--away-memory", "16MiB", "--disk", "8MiB", "--disk-folder", str(tmp_path))
    with crowded(*options, times="1") as (server, operator), lodgers(server, [32 * MIB]) as (one,):
        one.ready()
        number = operator.session().id
        with pytest.raises(grpc.RpcError) as refused:
            operator.evict(number)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        text = refused.value.details() or ""
        assert re.fullmatch(r"\d+ bytes are needed for its copy: .*--away-memory.*--disk.* are left", text), (
            text
        )
        said = command(server, "session", "evict", str(number), status=Exit.FAILED)
        assert " ".join(said.split()).startswith(f"gpuferry: {text}"), said
        assert operator.where(number) == "resident"
        one.work()
        one.finish()
        operator.until_none_is_left()


def test_what_host_memory_does_not_hold_goes_to_the_disk(tmp_path: Path) -> None:
    options = ("--away-memory", "16MiB", "--disk", "64MiB", "--disk-folder", str(tmp_path))
    with crowded(*options, times="1") as (server, operator), lodgers(server, [32 * MIB]) as (one,):
        one.ready()
        number = operator.session().id
        operator.evict(number)
        assert operator.where(number) == "disk"
        monitor_info = operator.status().monitor
        assert (monitor_info.away_memory_used, monitor_info.away_disk_used) == (16 * MIB, 16 * MIB)
        assert list(tmp_path.iterdir()) == []  # nobody else can open it
        one.work()
        one.finish()
        operator.until_none_is_left()


def test_host_memory_is_for_those_that_return_first(tmp_path: Path) -> None:
    """Copies of who is idle longest go on to the disk; where that has no room, they stay."""
    options = ("--away-memory", "16MiB", "--disk", "20MiB", "--disk-folder", str(tmp_path))
    with crowded(*options, times="1") as (server, operator), lodgers(server, [16 * MIB] * 3) as programs:
        for one in programs:  # each is idle for less long than the one before
            one.ready()
        for one in programs:
            one.work()
        numbers = {one.guest_pid: number for number, one in operator.sessions().items()}
        order = [numbers[one.process.pid] for one in programs]
        for number in order[:2]:
            operator.evict(number)
        assert [operator.where(number) for number in order] == ["disk", "host", "resident"]
        with pytest.raises(grpc.RpcError, match="are needed for its copy"):
            operator.evict(order[2])
        assert [operator.where(number) for number in order] == ["disk", "host", "resident"]
        for one in programs:
            one.work()
        for one in programs:
            one.finish()
        operator.until_none_is_left()


def test_a_lease_is_no_larger_than_a_device() -> None:
    with crowded(times="4") as (server, _):
        one = Lodger(server, 256 * MIB)
        output, errors = one.process.communicate()
        assert one.process.returncode != 0
        assert "at most" in output + errors


@pytest.mark.system
def test_what_the_commands_say() -> None:
    with crowded(times="1") as (server, operator), lodgers(server, [32 * MIB]) as (one,):
        one.ready()
        number = operator.session().id
        said = command(server, "session", "evict", str(number))
        assert re.fullmatch(
            rf"session {number} left its GPU: 32 MiB, of which 32 MiB had to be copied, in [\d.]+ ms\n", said
        ), said
        assert "its memory in host memory" in command(server, "session", "list")
        assert "(in host memory)" in command(server, "status")
        (found,) = server.status()["sessions"]
        assert (found["residency"], found["copy_bytes"], found["stays"]) == ("host", 32 * MIB, "")
        assert "is on its GPU again" in command(server, "session", "recall", str(number))
        assert "its memory in host memory" not in command(server, "session", "list")
        one.finish()


def command(server: Monitor, *arguments: str, status: int = 0) -> str:
    """What it prints, or says is wrong."""
    asked = [*CLI, *arguments, "--control", server.control]
    environment = {**os.environ, **server.settings(), "COLUMNS": "200"}
    with Popen(asked, env=environment, stdout=PIPE, stderr=PIPE, text=True) as running:
        stdout, stderr = running.communicate()
    assert running.returncode == status, stderr
    return str(stderr if status else stdout)


@pytest.mark.system
def test_copies_are_made_ahead_where_a_device_is_promised_more_than_once() -> None:
    """Then leaving costs no copy."""
    with crowded() as (server, operator), lodgers(server, [64 * MIB, 56 * MIB, 16 * MIB]) as programs:
        for one in programs:
            one.ready()
        for _ in attempts():
            found = operator.sessions()
            if sum(session.copy_bytes > 0 for session in found.values()) == 3:
                break
        copied = [
            session for session in found.values() if session.residency == control_pb2.RESIDENCY_RESIDENT
        ]
        assert copied
        assert operator.evict(copied[0].id).copied_bytes == 0
        for one in programs:
            one.finish()
        operator.until_none_is_left()


LOOKER = """
import ctypes, json, pynvml, sys
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(32 << 20)) == 0
assert cuda.cuMemsetD8_v2(address, 7, ctypes.c_size_t(32 << 20)) == cuda.cuCtxSynchronize() == 0
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
for line in sys.stdin:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    used = pynvml.nvmlDeviceGetMemoryInfo(device).used
    print(json.dumps([free.value, total.value, used]), flush=True)
"""


def test_what_its_program_and_others_see_while_it_is_away() -> None:
    """Its program no difference, which does not bring it back; the operator that the GPU is free."""
    with crowded(times="2", pool=1) as (server, operator):
        environment = guest_environment(server.settings() | {"GPUFERRY_MEMORY": str(64 * MIB)})
        command = [sys.executable, "-c", LOOKER]
        with Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as program:
            assert program.stdin
            assert program.stdout
            asks, answers = program.stdin, program.stdout

            def look() -> list[int]:
                print(file=asks, flush=True)
                return [int(value) for value in json.loads(answers.readline())]

            for _ in attempts():
                if (seen := look())[2]:
                    break
            assert (seen[1] - seen[0], seen[2]) == (32 * MIB, 32 * MIB)
            number = operator.session().id
            assert operator.status().devices[0].memory_resident == 64 * MIB  # what it may have there
            operator.evict(number)
            assert look() == seen
            assert operator.where(number) == "host"
            found = operator.status()
            assert found.devices[0].memory_resident == 0
            assert found.devices[0].memory_in_host >= 32 * MIB
            assert (found.sessions[0].memory_mapped, found.sessions[0].copy_bytes) == (32 * MIB, 32 * MIB)
            asks.close()
            assert program.wait() == 0
        operator.until_none_is_left()


@pytest.mark.system
def test_who_has_several_devices_stays() -> None:
    with crowded(times="1", GPUFERRY_SIM_DEVICES="2") as (server, operator):
        one = Lodger(server, 16 * MIB, GPUFERRY_GPUS="2")
        one.ready()
        with pytest.raises(grpc.RpcError) as refused:
            operator.evict(operator.session().id)
        assert refused.value.details() == "it has several devices"
        assert operator.session().stays == "it has several devices"
        one.work()
        one.finish()
        operator.until_none_is_left()


@pytest.mark.system
def test_room_is_made_for_who_has_several_devices() -> None:
    """Two of those that are there would be too much beside it."""
    with (
        crowded(pool=5, GPUFERRY_SIM_DEVICES="2") as (server, operator),
        lodgers(server, [40 * MIB] * 4) as programs,
    ):
        for one in programs:
            one.ready()
        both = Lodger(server, 64 * MIB, GPUFERRY_GPUS="2")
        both.ready()
        assert all(0 < device.memory_resident <= 128 * MIB for device in operator.status().devices)
        for one in [*programs, both]:
            one.work()
        for one in [*programs, both]:
            one.finish()
        operator.until_none_is_left()


@pytest.mark.system
def test_who_finds_no_place_beside_memory_that_is_shared_goes_to_another_device() -> None:
    """A program that shares half of the device keeps another one's memory out, for as long as it lives."""
    with (
        crowded(
            pool=2,
            constants={"gpuferry.monitor.residency.wishes:PLACE_SECONDS": 0.1},
            GPUFERRY_SIM_DEVICES="2",
        ) as (server, operator),
        contextlib.ExitStack() as stack,
    ):
        (one,) = stack.enter_context(lodgers(server, [96 * MIB]))
        one.ready()
        number = operator.session().id
        operator.evict(number)
        environment = guest_environment(
            server.settings() | {"GPUFERRY_MEMORY": f"{64 * MIB}", "GPUFERRY_LABELS": "gpu=0"}
        )
        (sharing,) = stack.enter_context(program(environment, 1))
        assert sharing.handle(sharing.allocate(64))
        one.work()
        operator.until_at("resident", "resident")
        assert operator.sessions()[number].device == 1
        one.finish()
