"""Which GPU server a guest is sent to. No I/O, no clock."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuferry.specs._generated import registry_pb2

from ...policy.company import allows, homes, sit, spares
from ...policy.gpu import Gpu
from ...policy.interface import Request
from ...policy.kubeshare import ranks
from ...policy.portion import PLAIN, Marks, Portion


@dataclass(frozen=True)
class Wish:
    """What a guest asks for: memory, labels, GPUs, and of each of these part of its time, and company."""

    memory: int  # bytes of each; 0: whatever is usual
    labels: tuple[tuple[str, str], ...] = ()
    devices: int = 1
    portion: Portion = PLAIN  # its scope is that of servers on which labels are a tenant's own


class Cost(enum.IntEnum):
    """Who must make room for a guest's memory."""

    NOBODY = 0
    IDLE = 1  # sessions without work, whose memory leaves
    BUSY = 2  # those that work, too, and take turns with it


@dataclass(frozen=True)
class Standing:
    """How one GPU server compares with others."""

    address: str
    cost: Cost
    load: float  # sessions that run or wait, per place
    free: int  # bytes
    room: bool  # for this guest, now
    rank: int = 0  # of the best of its GPUs for this guest, by KubeShare
    home: bool = False  # those who say the guest's affinity are there
    strange: bool = False  # no program of the guest's function is there, and nothing of it is loaded


def _least_loaded(one: Standing) -> tuple[float, ...]:
    return one.load, one.strange, -one.free


_ORDERS: Mapping[str, Callable[[Standing], tuple[float, ...]]] = {
    "least-loaded": _least_loaded,
    "most-packed": lambda one: (-one.load, one.strange, one.free),
    "kubeshare": lambda one: (one.rank, one.strange),
}
POLICIES = tuple(_ORDERS)
NOBODY: Mapping[str, Sequence[Wish]] = {}


def eligible(server: registry_pb2.Server, wish: Wish) -> bool:
    """Whether the server is alive, not drained, has the labels, and could grant the memory on as many GPUs as
    are asked for if it were empty.
    """
    labels = {(label.name, label.value) for label in server.registration.labels}
    return (
        server.alive
        and server.load.accepting
        and not server.registration.drained
        and all(label in labels or _has_gpu(server, *label) for label in wish.labels)
        and _has_gpus(server, wish)
    )


def none_ever(servers: Collection[registry_pb2.Server], wish: Wish) -> bool:
    """Whether no registered server has as many GPUs as are asked for, each with that much memory, whoever
    leaves and whatever its labels. False while one is silent, or not all of its GPUs are ready: it may have
    them.
    """
    told = [one.alive and one.load.devices and all(map(_most, one.load.devices)) for one in servers]
    return bool(told) and all(told) and not any(_has_gpus(server, wish) for server in servers)


def _has_gpus(server: registry_pb2.Server, wish: Wish) -> bool:
    return sum(_most(device) >= wish.memory for device in server.load.devices) >= wish.devices


def _most(device: registry_pb2.Device) -> int:
    """Bytes that one session can be granted. More than that may be promised to several."""
    return min(device.memory_grantable, device.memory or device.memory_grantable)


def _has_gpu(server: registry_pb2.Server, name: str, value: str) -> bool:
    """Whether the label is one of a GPU that the server has, which it gives itself: nobody registers it."""
    return name == "gpu" and value.isdecimal() and int(value) < len(server.load.devices)


def _gpu(index: int, device: registry_pb2.Device) -> Gpu:
    """The device as policies see it."""
    gpu = Gpu(index, device.memory_grantable, usual=device.memory_usual)
    gpu.free -= device.memory_granted
    gpu.time -= device.time_promised
    gpu.busy = device.busy
    gpu.idle = list(range(device.idle))
    for company in device.company:
        said = company.affinity, company.anti_affinity, company.exclusion
        gpu.marks[company.scope] = Marks(1, *(dict.fromkeys(labels, 1) for labels in said))
    return gpu


def _cost(device: registry_pb2.Device, gpu: Gpu, wish: Wish) -> Cost:
    """Who must make room for such a guest on this GPU, after those on their way there."""
    coming = gpu.promised - device.memory_granted
    lack = (wish.memory or gpu.usual) + device.memory_resident + coming - device.memory
    if not device.memory or lack <= 0:
        return Cost.NOBODY
    return Cost.IDLE if lack <= device.memory_idle else Cost.BUSY


def _scoped(server: registry_pb2.Server, portion: Portion) -> Portion:
    return portion._replace(scope="") if server.load.labels_of_all else portion


def _gpus(server: registry_pb2.Server, sent: Sequence[Wish]) -> list[Gpu]:
    """The server's GPUs, with those on their way there: who asks for a part as if it were placed by
    KubeShare's rules, the memory of others spread evenly.
    """
    gpus = [_gpu(index, device) for index, device in enumerate(server.load.devices)]
    plain = [one for one in sent if one.portion.says_nothing]
    for gpu in gpus:
        gpu.free -= sum((one.memory or gpu.usual) * one.devices for one in plain) // len(gpus)
    for number, wish in enumerate(one for one in sent if not one.portion.says_nothing):
        portion = _scoped(server, wish.portion)
        found = _fitting(gpus, wish, portion)
        best = sorted(zip(ranks(portion, found), range(len(found)), strict=True))
        for _, place in best[: wish.devices]:
            gpu = found[place]
            sit(Request(number, wish.memory or gpu.usual, portion=portion), gpu)
            gpu.busy += 1
    return gpus


def _fitting(gpus: Sequence[Gpu], wish: Wish, portion: Portion) -> list[Gpu]:
    wanted = homes(portion, gpus)
    return [
        gpu
        for gpu in gpus
        if gpu.free >= (wish.memory or gpu.usual)
        and spares(portion, gpu)
        and (wanted is None or gpu in wanted)
        and allows(portion, gpu)
    ]


def _standing(
    server: registry_pb2.Server, wish: Wish, pending: int, sent: Sequence[Wish], strange: bool
) -> Standing:
    load, portion = server.load, _scoped(server, wish.portion)
    gpus = _gpus(server, sent)
    places = sum(device.places for device in load.devices) or 1
    idle = sum(device.idle for device in load.devices)
    fitting = _fitting(gpus, wish, portion)
    fits = len(fitting) >= wish.devices
    if wish.devices > 1:  # it takes one place of each of its GPUs
        fits = sum(bool(gpu.idle) for gpu in fitting) >= wish.devices
    costs = sorted(_cost(load.devices[gpu.index], gpu, wish) for gpu in fitting)[: wish.devices]
    return Standing(
        server.registration.address,
        max(costs, default=Cost.BUSY),
        (load.sessions + load.waiting + pending) / places,
        sum(device.memory_grantable - device.memory_granted for device in load.devices),
        fits and idle > pending,
        min(ranks(portion, fitting), default=0),
        homes(portion, gpus) is not None,
        strange,
    )


def choose(
    policy: str,
    servers: Iterable[registry_pb2.Server],
    wish: Wish,
    pending: Mapping[str, int],
    sent: Mapping[str, Sequence[Wish]] = NOBODY,
    holders: Collection[str] = (),
) -> str | None:
    """The address of the server that the policy prefers, or None if none is eligible.

    `pending`: guests that were sent to each address, and that no heartbeat counts yet; `sent`: what those
    asked for. `holders`: addresses where the guest's function has something loaded. Whatever the policy, an
    affinity goes where those are who say the same; then who costs others least is best. Of servers between
    which the policy sees no difference the function's are first.
    """
    standings = []
    for server in servers:
        if eligible(server, wish):
            address = server.registration.address
            coming = pending.get(address, 0), sent.get(address, ())
            standings.append(_standing(server, wish, *coming, address not in holders))
    standings = [one for one in standings if one.home] or standings
    with_room = [standing for standing in standings if standing.room]
    if with_room:
        return min(with_room, key=lambda one: (one.cost, *_ORDERS[policy](one), one.address)).address
    # Where all are full, a guest waits least at the one with the shortest queue, whatever the policy.
    best = min(standings, key=lambda one: (*_least_loaded(one), one.address), default=None)
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
