"""What a monitor's heartbeat says of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from gpuferry.specs._generated import registry_pb2

from ..broker.broker import Broker
from ..policy.portion import FULL
from ..pool.api_server import State
from ..pool.pool import Pool
from ..residency.steward import Steward
from ..service.versions import package_version
from ..sessions.placement import DeviceRoom
from ..sessions.session import Session
from ..settings.monitor import Config
from ..settings.scopes import SERVER
from .registry.programs import ID_SIZE, PROGRAMS_MOST

HEAD_MOST = 8  # bytes before a message within another
LOAD_MOST = (1 << 20) - (16 << 10)  # bytes: a registry takes 1 MiB, and tickets come, too


def describe(config: Config, broker: Broker, pool: Pool, steward: Steward) -> registry_pb2.Load:
    """What this monitor's next heartbeat says: devices, sessions, queue, memory, as far as that is known. Of
    its programs nothing yet: they are told as far as there is room.
    """
    host, disk = steward.copies_left() if steward.elastic else (0, 0)
    return registry_pb2.Load(
        version=package_version(),
        devices=_devices(config, broker.rooms(), pool, steward, host + disk),
        sessions=len(broker.running()),
        waiting=len(broker.waiting()),
        away_memory_left=host,
        away_disk_left=disk,
        labels_of_all=config.label_scope == SERVER,
        # Being drained is the registry's own word: it knows better when that ends.
        accepting=broker.drained or not broker.draining,
    )


def _devices(
    config: Config, known: Iterable[DeviceRoom], pool: Pool, steward: Steward, copies_left: int
) -> list[registry_pb2.Device]:
    rooms = {room.ordinal: room for room in known}
    devices = []
    for ordinal in range(config.devices):
        device = registry_pb2.Device(ordinal=ordinal, simulated=config.simulated, places=config.pool)
        for server in pool.servers.values():
            if server.device == ordinal and server.ready:
                device.name = server.ready.device_name
                device.idle += server.state is State.IDLE
        if room := rooms.get(ordinal):
            _fill(device, room, steward, copies_left)
        devices.append(device)
    return devices


def _fill(device: registry_pb2.Device, room: DeviceRoom, steward: Steward, copies_left: int) -> None:
    device.memory_grantable = room.grantable
    device.memory_granted = room.granted
    device.memory_usual = room.default_quota
    there = steward.outlook(device.ordinal, copies_left)
    device.memory = there.memory
    device.memory_resident = there.resident
    device.memory_idle = there.idle
    device.memory_away = there.away
    device.time_promised = max(FULL - room.gpu.time, 0)
    device.busy = room.gpu.busy
    for scope, marks in room.gpu.marks.items():
        device.company.add(
            scope=scope,
            affinity=sorted(marks.affinity),
            anti_affinity=sorted(marks.anti_affinity),
            exclusion=sorted(marks.exclusion),
        )


def tell_programs(load: registry_pb2.Load, programs: Iterable[registry_pb2.Program]) -> None:
    """Add as many as the registry takes in one message, which is never refused because of them."""
    left = LOAD_MOST - load.ByteSize()
    for one in itertools.islice(programs, PROGRAMS_MOST):
        left -= one.ByteSize() + HEAD_MOST
        if left < 0:
            return
        load.programs.append(one)


def programs_of(sessions: Iterable[Session], steward: Steward) -> list[registry_pb2.Program]:
    """Those whose processes are to be together first, where there are too many to tell."""
    entries, found = steward.entries(), dict[int, registry_pb2.Program]()
    for session in sessions:
        lease = session.lease
        one = found.get(lease.number)
        if one is None:
            one = found[lease.number] = registry_pb2.Program(
                id=lease.program[:ID_SIZE], tenant=session.hello.tenant, function=session.hello.function
            )
        one.sessions += 1
        if entry := entries.get(session.id):
            mapped = steward.wishes.used(entry) * len(entry.devices)
            one.resident += 0 if entry.away else mapped
            one.away += mapped if entry.away else 0
            one.devices.extend(device for device in entry.devices if device not in one.devices)
    return sorted(found.values(), key=lambda one: not one.id)
