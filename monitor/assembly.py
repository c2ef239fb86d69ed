"""The parts of a monitor, put together: every part is given what it needs when it is made."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpuferry.specs._generated import node_pb2

from .broker.balance import Balance
from .broker.broker import Broker
from .broker.spare import SpareMemory
from .cluster.membership import Membership, cluster_of
from .cluster.neighbours import Neighbours
from .devices.choice import server_environment
from .devices.gpus import GpuStats, gpu_stats
from .door.listener import Listener, listen_tcp, listen_unix, name_of, stop_listening
from .policy import build as build_policy
from .pool.adoption import DOOR, LATEST_RETURN_SECONDS, Door, Ledger
from .pool.events import PoolEvents
from .pool.losses import LostDevices
from .pool.pool import Pool
from .readiness import Readiness
from .service.runtime import RuntimeDirectory
from .service.stopping import Stopping
from .sessions.events import Announcer
from .sessions.placement import Placer
from .settings.folders import store_path
from .settings.monitor import Config
from .views.control import ControlServer, MonitorService
from .views.stats.accounting import Accounting
from .views.stats.observatory import Observatory
from .views.status import StatusReporter
from .views.web.sockets import listen_http


@dataclass(frozen=True)
class Premises:
    """What a monitor occupies on its machine. Nobody else can have it meanwhile."""

    runtime: RuntimeDirectory
    ledger: Ledger
    guests: Sequence[socket.socket]  # where guests connect; the last is the one for other machines, if any is
    http: socket.socket | None


@dataclass(frozen=True)
class Monitor:
    """One monitor, complete and not running yet."""

    broker: Broker
    pool: Pool
    door: Door | None  # by which API servers of an earlier monitor come back
    listeners: Sequence[Listener]
    control: ControlServer
    observatory: Observatory
    gpus: GpuStats
    losses: LostDevices
    readiness: Readiness
    balance: Balance | None
    membership: Membership
    http_name: str


def checks_kernels(config: Config) -> bool:
    """Whether kernels on the simulated device are held to their own memory: where others than the operator
    may come, if nobody says.
    """
    tenants = bool(config.registry) or store_path(config.state).exists()
    return config.check_kernels == "on" or (config.check_kernels == "auto" and tenants)


def occupy(config: Config, stack: contextlib.AsyncExitStack) -> Premises:
    """Take the runtime folder and the ports; `stack` gives them back. ConfigError: somebody else has them."""
    runtime = RuntimeDirectory(config.runtime, private=config.status_descriptor is not None)
    stack.callback(runtime.close)
    ledger = Ledger(runtime)
    ledger.reserve_numbers()
    guests = []
    if config.socket:
        guests.append(listen_unix(config.socket))
        stack.callback(stop_listening, guests[-1])
    if config.listen:
        guests.append(listen_tcp(config.listen))
        stack.callback(stop_listening, guests[-1])
    http = listen_http(config.http) if config.http else None
    if http:
        stack.callback(stop_listening, http)
    return Premises(runtime, ledger, guests, http)


def build(config: Config, premises: Premises, stopping: Stopping) -> Monitor:
    """Make all parts of a monitor; nothing runs yet, and nobody is told anything. Raises ConfigError."""
    ledger = premises.ledger
    placer = Placer(build_policy(config.policy, config.queue, config.migration))
    announcer, events = Announcer(), PoolEvents()
    gpus = gpu_stats(config)
    door_path, home = premises.runtime.path / DOOR, None
    if config.orphan_grace:
        home = node_pb2.Home(path=str(door_path), secret=ledger.secret, grace_seconds=config.orphan_grace)
    environment = server_environment(config.simulated, config.simulated and checks_kernels(config))
    pool = Pool(config, environment, home, SpareMemory(placer, gpus).of, events)

    cluster = cluster_of(config)
    neighbours = Neighbours(config.token, cluster.key, cluster.registries)
    complete_at = time.monotonic() + LATEST_RETURN_SECONDS if ledger.inherited else 0.0
    broker = Broker(config, placer, announcer, pool, neighbours.connect, ledger.next_session, complete_at)
    accounting = Accounting(broker.came_from_elsewhere)
    readiness = Readiness(pool, config.status_descriptor, stopping)
    for listener in (accounting, broker, readiness):  # in this order: a session is counted before it is over
        events.subscribe(listener)

    membership = Membership(config, cluster, broker, pool)
    limit = config.handshake_timeout
    listeners = [Listener(end, membership.authority, limit, broker) for end in premises.guests]
    http_name = name_of(premises.http) if premises.http else ""
    reporter = StatusReporter(config, pool, broker, [one.name for one in listeners], http_name, gpus)
    return Monitor(
        broker,
        pool,
        Door(door_path, ledger.secret, pool.adopt) if home else None,
        listeners,
        ControlServer(MonitorService(reporter.report, stopping.pause, broker), config.token),
        Observatory(broker, pool, reporter, accounting, announcer),
        gpus,
        LostDevices(pool, gpus),
        readiness,
        Balance(broker, pool, gpus) if config.migration != "off" else None,
        membership,
        http_name,
    )
