"""What a monitor's heartbeat says of it."""

from __future__ import annotations

from gpuferry.specs._generated import registry_pb2

from ..broker.broker import Broker
from ..policy.portion import FULL
from ..pool.api_server import State
from ..pool.pool import Pool
from ..service.versions import package_version
from ..settings.monitor import Config
from ..settings.scopes import SERVER


def describe(config: Config, broker: Broker, pool: Pool) -> registry_pb2.Load:
    """What this monitor's next heartbeat says: devices, sessions, queue. Nobody is asked for it."""
    rooms = {room.ordinal: room for room in broker.rooms()}
    devices = []
    for ordinal in range(config.devices):
        device = registry_pb2.Device(ordinal=ordinal, simulated=config.simulated, places=config.pool)
        for server in pool.servers.values():
            if server.device == ordinal and server.ready:
                device.name = server.ready.device_name
                device.idle += server.state is State.IDLE
        if room := rooms.get(ordinal):
            device.memory_grantable = room.grantable
            device.memory_granted = room.granted
            device.time_promised = max(FULL - room.gpu.time, 0)
            device.busy = room.gpu.busy
            for scope, marks in room.gpu.marks.items():
                device.company.add(
                    scope=scope,
                    affinity=sorted(marks.affinity),
                    anti_affinity=sorted(marks.anti_affinity),
                    exclusion=sorted(marks.exclusion),
                )
        devices.append(device)
    return registry_pb2.Load(
        version=package_version(),
        devices=devices,
        sessions=len(broker.running()),
        waiting=len(broker.queue()),
        labels_of_all=config.label_scope == SERVER,
        # Being drained is the registry's own word: it knows better when that ends.
        accepting=broker.drained or not broker.draining,
    )
