"""`gpuferry server …`: the GPU servers that a registry knows."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .ask import confirm
from .errors import CliError, Exit, say
from .parameters import SECONDS_MOST, Json, Timeout, Yes

if TYPE_CHECKING:
    from gpuferry.specs._generated import registry_pb2

SCHEMA, SCHEMA_ONE = "gpuferry.servers/1", "gpuferry.server/1"
SCHEMA_PROGRAMS = "gpuferry.server.programs/1"
WATCH_SECONDS = 0.5

app = typer.Typer(name="server", help="The GPU servers of a cluster.", no_args_is_help=True)

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="HOST:PORT where guests reach it")]
Registry = Annotated[
    str | None,
    typer.Option("--registry", metavar="HOST:PORT", help="The registry's control port [GPUFERRY_REGISTRY]"),
]
InRegistry = Annotated[
    str | None,
    typer.Option(
        "--registry", metavar="HOST:PORT", help="In the cluster whose registry's control port this is"
    ),
]
KeyFile = Annotated[
    str | None,
    typer.Option(
        "--cluster-key-file",
        metavar="FILE",
        help="The file of the cluster's key [GPUFERRY_CLUSTER_KEY_FILE, GPUFERRY_CLUSTER_KEY]",
    ),
]


def _call(method: str, request: Any, registry: str | None, key: str | None, timeout: float) -> Any:
    from .cluster import Cluster

    return Cluster(registry, key, timeout).call(method, request)


def _one(address: str) -> registry_pb2.ServerRequest:
    from gpuferry.specs._generated import registry_pb2

    return registry_pb2.ServerRequest(address=address)


def _seen_from(server: str, registry: str) -> str:
    """The registry's replicas as a monitor at this address is to name them: a loopback address would be that
    machine's own.
    """
    from gpuferry.guest.endpoint import TLS_SCHEME

    from ..service.dial import stays_here

    def named(replica: str) -> str:
        place = replica.removeprefix(TLS_SCHEME)
        if place.startswith("unix:") or not stays_here(place) or stays_here(server):
            return replica
        return replica.removesuffix(place) + f"{socket.gethostname()}:{place.rpartition(':')[2]}"

    return ",".join(map(named, registry.split(",")))


def _state(server: registry_pb2.Server) -> str:
    if not server.alive:
        return "silent"
    if server.registration.drained:
        return "draining" if server.load.sessions or server.load.waiting else "drained"
    return "up"


def _plain(server: registry_pb2.Server) -> dict[str, Any]:
    registration, load = server.registration, server.load
    return {
        "address": registration.address,
        "state": _state(server),
        "alive": server.alive,
        "drained": registration.drained,
        "labels": {label.name: label.value for label in registration.labels},
        "registered": registration.registered,
        "version": load.version,
        "sessions": load.sessions,
        "waiting": load.waiting,
        "away_memory_left": load.away_memory_left,
        "away_disk_left": load.away_disk_left,
        "devices": [
            {
                "ordinal": device.ordinal,
                "name": device.name,
                "simulated": device.simulated,
                "memory_grantable": device.memory_grantable,
                "memory_granted": device.memory_granted,
                "memory": device.memory,
                "memory_resident": device.memory_resident,
                "memory_idle": device.memory_idle,
                "memory_away": device.memory_away,
                "places": device.places,
                "idle": device.idle,
            }
            for device in load.devices
        ],
    }


def _print_list(reply: registry_pb2.ListReply, as_json: bool, indent: int | None = 2) -> None:
    if as_json:
        servers = [_plain(server) for server in reply.servers]
        print(json.dumps({"schema": SCHEMA, "servers": servers}, indent=indent), flush=True)
        return
    from gpuferry.guest.units import format_size

    from .tables import print_table

    rows = []
    for server in reply.servers:
        devices = server.load.devices
        granted = sum(device.memory_granted for device in devices)
        grantable = sum(device.memory_grantable for device in devices)
        away = sum(device.memory_away for device in devices)
        rows.append(
            (
                server.registration.address,
                _state(server) + (", drained" if server.registration.drained and not server.alive else ""),
                str(len(devices)) if server.alive else "-",
                f"{server.load.sessions}" if server.alive else "-",
                f"{server.load.waiting}" if server.alive else "-",
                f"{format_size(granted)} of {format_size(grantable)}" if server.alive else "-",
                format_size(away) if server.alive else "-",
                ",".join(f"{label.name}={label.value}" for label in server.registration.labels) or "-",
            )
        )
    print_table(("ADDRESS", "STATE", "DEVICES", "SESSIONS", "WAITING", "MEMORY", "AWAY", "LABELS"), rows)


@app.command()
def register(
    address: Address,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Guests can ask for it")
    ] = None,
    registry: Registry = None,
    key: KeyFile = None,
    timeout: Timeout = 5.0,
) -> None:
    """Make a GPU server known to the registry. Once more with other labels: change them."""
    from gpuferry.specs._generated import registry_pb2

    request = registry_pb2.RegisterRequest(address=address)
    for text in label or []:
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise CliError(Exit.USAGE, f"--label {text}: write NAME=VALUE")
        request.labels.add(name=name, value=value)
    from .cluster import Cluster

    cluster = Cluster(registry, key, timeout)
    if not cluster.call("Register", request).alive:
        where = _seen_from(address, cluster.where)
        say(
            f"registered {address}; it gets guests once its monitor runs",
            f"there: gpuferry monitor --registry {where} --advertise {address} --cluster-key-file …",
        )


@app.command("list")
def list_servers(
    registry: Registry = None,
    key: KeyFile = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", help="Addresses only")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again at every change, until interrupted")] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print all GPU servers and how they are."""
    from gpuferry.specs._generated import registry_pb2

    if watch:
        _watch(registry, key, as_json, timeout)
    reply = _call("List", registry_pb2.ListRequest(), registry, key, timeout)
    if quiet:
        for server in reply.servers:
            print(server.registration.address)
        return
    _print_list(reply, as_json)


def _watch(registry: str | None, key: str | None, as_json: bool, timeout: float) -> NoReturn:
    """Print them again whenever anything of it has changed. Each time it is asked for anew: on a stream a
    registry that hangs, or whose machine is gone, would show what once was.
    """
    from gpuferry.specs._generated import registry_pb2

    from .cluster import Cluster

    cluster, shown = Cluster(registry, key, timeout), None
    while True:
        reply = cluster.call("List", registry_pb2.ListRequest())
        if (now := [_plain(server) for server in reply.servers]) != shown:
            shown = now
            _print_list(reply, as_json, None)
        time.sleep(WATCH_SECONDS)


@app.command()
def show(
    address: Address,
    registry: Registry = None,
    key: KeyFile = None,
    as_json: Json = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print one GPU server with its devices."""
    plain = _plain(_call("Show", _one(address), registry, key, timeout))
    if as_json:
        print(json.dumps({"schema": SCHEMA_ONE} | plain, indent=2))
        return
    from gpuferry.guest.units import format_size

    from .tables import print_table

    labels = ",".join(f"{name}={value}" for name, value in plain["labels"].items())
    print(f"{address}  {plain['state']}  {labels}".rstrip())
    print(f"registered {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(plain['registered']))}")
    if plain["alive"]:
        print(f"gpuferry {plain['version']}, {plain['sessions']} sessions, {plain['waiting']} waiting")
        rows = [
            (
                str(device["ordinal"]),
                device["name"] or "-",
                f"{format_size(device['memory_granted'])} of {format_size(device['memory_grantable'])}",
                f"{format_size(device['memory_resident'])} of {format_size(device['memory'])}",
                format_size(device["memory_idle"]),
                format_size(device["memory_away"]),
                f"{device['idle']} of {device['places']}",
            )
            for device in plain["devices"]
        ]
        print_table(("DEVICE", "NAME", "MEMORY GRANTED", "RESIDENT", "CAN LEAVE", "AWAY", "IDLE"), rows)
        left = plain["away_memory_left"], plain["away_disk_left"]
        if any(left):
            print("for what leaves: {} of host memory, {} of the disk".format(*map(format_size, left)))


@app.command()
def programs(
    function: Annotated[
        str | None, typer.Option("--function", metavar="NAME", help="Only programs of this function")
    ] = None,
    registry: Registry = None,
    key: KeyFile = None,
    as_json: Json = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print which programs are on which GPU server.

    And where their memory is: on a GPU, in host memory or on a disk.
    """
    from gpuferry.specs._generated import registry_pb2

    found = [
        {
            "server": server.registration.address,
            "tenant": one.tenant,
            "function": one.function,
            "devices": list(one.devices),
            "sessions": one.sessions,
            "resident": one.resident,
            "away": one.away,
        }
        for server in _call("List", registry_pb2.ListRequest(), registry, key, timeout).servers
        for one in server.load.programs
        if function in (None, one.function)
    ]
    if as_json:
        print(json.dumps({"schema": SCHEMA_PROGRAMS, "programs": found}, indent=2))
        return
    from gpuferry.guest.units import format_size

    from .tables import print_table

    rows = [
        (
            str(one["server"]),
            ",".join(map(str, one["devices"])) or "-",
            str(one["tenant"] or "-"),
            str(one["function"] or "-"),
            str(one["sessions"]),
            format_size(one["resident"]),
            format_size(one["away"]),
        )
        for one in found
    ]
    print_table(("SERVER", "DEVICES", "TENANT", "FUNCTION", "SESSIONS", "RESIDENT", "AWAY"), rows)


@app.command()
def drain(
    address: Address,
    wait: Annotated[bool, typer.Option("--wait", help="Until its last session has ended")] = False,
    registry: Registry = None,
    key: KeyFile = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.01,
            max=SECONDS_MOST,
            metavar="SECONDS",
            help="For an answer; with --wait: in all",
        ),
    ] = 60.0,
) -> None:
    """Give a GPU server no new sessions; those that it has may end."""
    from gpuferry.specs._generated import registry_pb2

    from .cluster import Cluster

    deadline = time.monotonic() + timeout
    cluster = Cluster(registry, key, timeout)
    server = cluster.call("Drain", _one(address))
    drained = server.load
    while wait and (_state(server) != "drained" or _may_come(server, drained)):
        if time.monotonic() > deadline:
            raise CliError(Exit.FAILED, f"{_not_drained(server)} after {timeout:g} s")
        time.sleep(0.25)
        server = cluster.call("Show", registry_pb2.ServerRequest(address=address))


def _may_come(server: registry_pb2.Server, drained: registry_pb2.Load) -> bool:
    """Whether guests may yet come that were sent there before it was drained, when it said this of itself.
    Of one that is silent nobody knows.
    """
    from ..cluster.registry.redirect import BEATS_TO_COME

    load = server.load
    known = load.incarnation != drained.incarnation or load.sequence >= drained.sequence + BEATS_TO_COME
    return not known


def _not_drained(server: registry_pb2.Server) -> str:
    """What keeps it from being drained."""
    address, count = server.registration.address, server.load.sessions + server.load.waiting
    if not server.alive:
        return f"{address} is silent, so that nobody knows whether it has sessions,"
    return f"{address} still has {count} sessions" if count else f"guests may yet come to {address}"


@app.command()
def undrain(address: Address, registry: Registry = None, key: KeyFile = None, timeout: Timeout = 5.0) -> None:
    """Give a GPU server new sessions again."""
    _call("Undrain", _one(address), registry, key, timeout)


@app.command()
def remove(
    address: Address,
    yes: Yes = False,
    registry: Registry = None,
    key: KeyFile = None,
    timeout: Timeout = 5.0,
) -> None:
    """Forget a GPU server; drain it first."""
    confirm(f"Remove {address} from the registry?", yes)
    _call("Remove", _one(address), registry, key, timeout)
