"""Which GPU server a guest is sent to. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuferry.specs._generated import registry_pb2

POLICIES = ("least-loaded", "most-packed")


@dataclass(frozen=True)
class Wish:
    """What a guest asks for: memory, labels and GPUs."""

    memory: int  # bytes of each; 0: whatever is usual
    labels: tuple[tuple[str, str], ...] = ()
    devices: int = 1


@dataclass(frozen=True)
class Standing:
    """How one GPU server compares with others."""

    address: str
    load: float  # sessions that run or wait, per place
    free: int  # bytes
    room: bool  # for this guest, now


def eligible(server: registry_pb2.Server, wish: Wish) -> bool:
    """Whether the server is alive, not drained, has the labels, and could grant the memory on as many GPUs as
    are asked for if it were empty.
    """
    labels = {(label.name, label.value) for label in server.registration.labels}
    return (
        server.alive
        and server.load.accepting
        and not server.registration.drained
        and labels.issuperset(wish.labels)
        and sum(device.memory_grantable >= wish.memory for device in server.load.devices) >= wish.devices
    )


def _standing(server: registry_pb2.Server, wish: Wish, pending: int) -> Standing:
    load, devices = server.load, server.load.devices
    places = sum(device.places for device in devices) or 1
    idle = sum(device.idle for device in devices)
    fitting = [one for one in devices if one.memory_grantable - one.memory_granted >= wish.memory]
    fits = len(fitting) >= wish.devices
    if wish.devices > 1:  # it takes one place of each of its GPUs
        fits = sum(one.idle > 0 for one in fitting) >= wish.devices
    return Standing(
        server.registration.address,
        (load.sessions + load.waiting + pending) / places,
        sum(device.memory_grantable - device.memory_granted for device in devices),
        fits and idle > pending,
    )


def choose(
    policy: str, servers: Iterable[registry_pb2.Server], wish: Wish, pending: Mapping[str, int]
) -> str | None:
    """The address of the server that the policy prefers, or None if none is eligible.

    `pending`: guests that were sent to each address, and that no heartbeat counts yet.
    """
    standings = [
        _standing(server, wish, pending.get(server.registration.address, 0))
        for server in servers
        if eligible(server, wish)
    ]
    with_room = [standing for standing in standings if standing.room]
    if policy == "most-packed" and with_room:
        return min(with_room, key=lambda one: (-one.load, one.free, one.address)).address
    # Where all are full, a guest waits least at the one with the shortest queue, whatever the policy.
    candidates = with_room or standings
    best = min(candidates, key=lambda one: (one.load, -one.free, one.address), default=None)
    return best.address if best else None


def why_none(servers: Iterable[registry_pb2.Server], wish: Wish) -> str:
    """The reason, for a guest, why `choose` found no server."""
    known = list(servers)
    alive = [server for server in known if server.alive and not server.registration.drained]
    wanted = ",".join(f"{name}={value}" for name, value in wish.labels)
    if not known:
        return "no GPU server is registered: `gpuferry server register ADDRESS`"
    if not alive:
        return f"none of {len(known)} GPU servers is alive and not drained: `gpuferry server list`"
    what = [f"has the labels {wanted}"] if wanted else []
    each = " on each" if wish.devices > 1 else ""
    what += [f"has {wish.devices} GPUs"] if wish.devices > 1 else []
    what += [f"can grant {wish.memory} bytes of device memory{each}"] if wish.memory else []
    return "no GPU server that is up " + " and ".join(what or ["takes guests at the moment"])
