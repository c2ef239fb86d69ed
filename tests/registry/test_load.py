"""A heartbeat is never too large for the registry: a server of whom it is not heard gets no guests."""

from __future__ import annotations

from gpuferry.monitor.cluster.load import tell_programs
from gpuferry.monitor.cluster.registry.programs import PROGRAMS_MOST
from gpuferry.specs._generated import registry_pb2, tenants_pb2

REGISTRY_TAKES = 1 << 20


def _usage(tenant: str, day: str = "") -> tenants_pb2.Usage:
    used = dict.fromkeys(("wall_seconds", "gpu_seconds", "memory_byte_seconds"), 1.5)
    return tenants_pb2.Usage(tenant=tenant, sessions=1 << 40, calls=1 << 50, day=day, **used)


def _program(number: int, name: str = "") -> registry_pb2.Program:
    id_ = number.to_bytes(16, "little")
    return registry_pb2.Program(
        id=id_, tenant=name, function=name, devices=[0, 1], sessions=2, resident=1 << 38, away=1 << 38
    )


def test_many_tenants_with_many_programs() -> None:
    load = registry_pb2.Load(address="gpu-1.example:7070", sessions=PROGRAMS_MOST)
    for number in range(1500):
        name = f"tenant-{number:056}"
        days = [_usage(name, "2026-11-27"), _usage(name, "2026-11-28")]
        load.tenants.add(tenant=name, sessions=9, memory=1 << 38, share=0.5, usage=_usage(name), days=days)
    programs = [_program(number, f"tenant-{number:056}") for number in range(5000)]
    assert load.ByteSize() + sum(one.ByteSize() for one in programs[:PROGRAMS_MOST]) > REGISTRY_TAKES
    tell_programs(load, programs)
    load.tickets.extend([bytes(16)] * 512)
    assert REGISTRY_TAKES - (64 << 10) < registry_pb2.HeartbeatRequest(load=load).ByteSize() < REGISTRY_TAKES
    assert list(load.programs) == programs[: len(load.programs)]


def test_few_are_told_whole() -> None:
    load = registry_pb2.Load()
    tell_programs(load, [_program(number) for number in range(5000)])
    assert len(load.programs) == PROGRAMS_MOST
