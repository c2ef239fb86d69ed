"""The parts of a monitor, put together: every part is given what it needs when it is made."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from .arbiter.office import Office
from .arbiter.shares import VARIABLE, read_stated, shares_of
from .broker.balance import Balance
from .broker.broker import Broker
from .broker.greed import Greed
from .broker.spare import SpareMemory
from .broker.strays import Strays
from .cluster.cluster import cluster_of
from .cluster.membership import Membership
from .cluster.neighbours import Neighbours
from .devices.choice import server_environment
from .devices.gpus import GpuStats, gpu_stats
from .door.listener import Listener, listen_tcp, listen_unix, name_of, stop_listening
from .door.tokens.proof import is_tenant
from .jail.choose import choose as choose_jail
from .jail.jail import Jail
from .moves.snapshots import Snapshots, read_secret
from .policy import build as build_policy
from .pool.adoption import LATEST_RETURN_SECONDS, Ledger
from .pool.descriptions import Descriptions
from .pool.events import PoolEvents
from .pool.losses import LostDevices
from .pool.mps import Mps, find
from .pool.pool import Pool
from .pool.released import Door
from .pool.returns import Returns, Rounds
from .readiness import Readiness
from .residency.steward import Steward
from .service.descriptors import Shares, shares
from .service.logs import hide
from .service.runtime import RuntimeDirectory
from .service.stopping import Stopping
from .service.tls import Identity, identity_of
from .sessions.book import remove_all
from .sessions.events import Announcer
from .sessions.placement import Placer
from .settings.errors import ConfigError
from .settings.folders import state_directory
from .settings.monitor import NANO, Config
from .tenants.tenancy import Tenancy
from .tenants.usage import FILE as USAGE
from .tenants.usage import UsageBook
from .views.callers import Callers
from .views.control import ControlServer, MonitorService
from .views.looks import Looks
from .views.stats.accounting import Accounting
from .views.stats.billing import Billing
from .views.stats.observatory import Observatory
from .views.status import StatusReporter
from .views.web.key import page_key
from .views.web.sockets import listen_http

log = structlog.get_logger()


@dataclass(frozen=True)
class Premises:
    """What a monitor occupies on its machine. Nobody else can have it meanwhile."""

    runtime: RuntimeDirectory
    ledger: Ledger
    guests: Sequence[socket.socket]  # where guests connect; the last is the one for other machines, if any is
    http: socket.socket | None
    identity: Identity | None  # for TLS, where it is used


@dataclass(frozen=True)
class Monitor:
    """One monitor, complete and not running yet."""

    broker: Broker
    pool: Pool
    rounds: Rounds | None  # to the API servers of an earlier monitor
    door: Door | None  # for those of release 0.1
    listeners: Sequence[Listener]
    control: ControlServer
    observatory: Observatory
    gpus: GpuStats
    losses: LostDevices
    readiness: Readiness
    balance: Balance | None
    membership: Membership
    http_name: str  # HOST:PORT of the page, behind https:// where it has TLS; empty: there is none
    page_key: str = field(repr=False)
    steward: Steward
    greed: Greed
    strays: Strays
    billing: Billing
    callers: Callers
    room: Shares
    office: Office | None  # of turns, where sessions take them
    mps: Mps | None


def occupy(config: Config, stack: contextlib.AsyncExitStack) -> Premises:
    """Take the runtime folder and the ports; `stack` gives them back. ConfigError: somebody else has them."""
    identity = identity_of(config)
    runtime = RuntimeDirectory(config.runtime, private=config.status_descriptor is not None)
    stack.callback(runtime.close)
    ledger = Ledger(runtime)
    try:
        ledger.reserve_numbers()
    except OSError as error:
        if not ledger.inherited:
            hint = "make room there, or set GPUFERRY_RUNTIME_DIR to another folder"
            raise ConfigError(f"cannot write in {config.runtime}: {error.strerror}", hint) from None
        # Sessions of an earlier monitor come first: new guests are refused until there is room.
        log.error(
            "the ledger cannot be written: only sessions of the earlier monitor go on", error=str(error)
        )
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
    return Premises(runtime, ledger, guests, http, identity)


def build(config: Config, premises: Premises, stopping: Stopping) -> Monitor:
    """Make all parts of a monitor; nothing runs yet, and nobody is told anything. Raises ConfigError."""
    ledger = premises.ledger
    tenancy = Tenancy(config.tenants or {})
    policy = build_policy(config.policy, config.queue, config.migration, tenancy.share)
    placer = Placer(policy, config.devices)
    announcer, events = Announcer(), PoolEvents()
    gpus = gpu_stats(config)
    returns = Returns(premises.runtime.path, ledger.secret, config.orphan_grace)
    environment = server_environment(config.simulated, config.simulated and config.check_kernels == "on")
    jail = _jail(config, environment)
    mps = Mps(premises.runtime.path / "mps", find()) if config.mps else None
    environment |= mps.environment if mps else {}
    pool = Pool(
        config,
        environment,
        returns if config.orphan_grace else None,
        jail,
        SpareMemory(placer, gpus).of,
        events,
        mps,
    )

    cluster = cluster_of(config, premises.identity)
    neighbours = Neighbours(config.token, cluster)
    complete_at = time.monotonic() + LATEST_RETURN_SECONDS if ledger.inherited else 0.0
    secret = read_secret(config.snapshot_key_file, cluster.key, state_directory(config.state))
    snapshots = Snapshots(secret)
    room = shares()
    books = premises.runtime.path / "leases"
    if not ledger.inherited:
        remove_all(books)
    folder = _disk_folder(config)
    steward = Steward(config.oversubscribe, config.away_memory, config.disk, folder, expected=config.devices)
    broker = Broker(
        config,
        placer,
        steward,
        announcer,
        pool,
        snapshots,
        neighbours.connect,
        ledger.next_session,
        complete_at,
        tenancy,
        room.waiting,
        books,
    )
    steward.on_stranded = broker.move_away
    usage = UsageBook(state_directory(config.state) / USAGE, is_tenant)
    billing = Billing(broker, usage, tenancy, ledger.inherited)
    announcer.subscribe(billing.happened)
    accounting = Accounting(broker.came_from_elsewhere)
    stated = read_stated(os.environ.get(VARIABLE, ""))
    office = None
    if config.turns:
        office = Office(
            config.turns,
            round(config.overrun * NANO),
            pool.servers.values,
            lambda session: shares_of(broker.sessions.get(session), stated),
            steward.turn_comes,
            steward.transit.residence,
        )
        steward.transit.on_place = office.place
    readiness = Readiness(pool, config.status_descriptor, stopping)
    descriptions = Descriptions(pool)
    rounds = Rounds(returns, returns.left(), pool.adopt, pool.bury) if config.orphan_grace else None
    # In this order: a session is counted before it is over; and its memory is free before another gets it.
    for listener in (
        accounting,
        billing,
        steward,
        broker,
        readiness,
        descriptions,
        *([office] if office else []),
    ):
        events.subscribe(listener)

    key = page_key(config.page_key_file, config.token)
    hide(key)
    membership = Membership(config, cluster, broker, pool, steward, tenancy, billing.reports)
    callers = Callers(config.token, membership.holds, tenancy)
    identity = premises.identity
    looks = Looks(broker, pool, descriptions, gpus, tenancy)
    listeners = [
        Listener(end, membership.authority, config.handshake_timeout, looks, identity, room.shaking)
        for end in premises.guests
    ]
    http_name = name_of(premises.http) if premises.http else ""
    if http_name and premises.identity:
        http_name = f"https://{http_name}"
    names = [one.name for one in listeners]
    reporter = StatusReporter(config, pool, broker, steward, names, http_name, gpus, office)
    return Monitor(
        broker,
        pool,
        rounds,
        Door(premises.runtime.path, ledger.secret, config.orphan_grace, pool.adopt)
        if config.orphan_grace and ledger.released
        else None,
        listeners,
        ControlServer(
            MonitorService(reporter.report, stopping.pause, broker, steward, billing.asked),
            callers,
            room.control,
            identity,
        ),
        Observatory(broker, pool, reporter, accounting, announcer, billing.totals, tenancy.starts_refused),
        gpus,
        LostDevices(pool, gpus),
        readiness,
        Balance(broker, pool, gpus) if config.migration != "off" else None,
        membership,
        http_name,
        key,
        steward,
        Greed(pool.everyone, broker.sessions),
        Strays(books, complete_at, broker.sessions, returns.all_back if rounds else None),
        billing,
        callers,
        room,
        office,
        mps,
    )


def _disk_folder(config: Config) -> Path:
    """Where files of sessions' memory lie. Raises ConfigError if they cannot."""
    folder = Path(config.disk_folder) if config.disk_folder else state_directory(config.state)
    if config.disk:
        try:
            if not config.disk_folder:  # one that was named may be of a disk that is not mounted
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            hint = "give --disk-folder a folder on ext4, xfs or another file system with files without a name"
            raise ConfigError(f"no file can be made in {folder}: {error.strerror}", hint) from None
    return folder


def _jail(config: Config, environment: Mapping[str, str]) -> Jail | None:
    """Where API servers live, if there are jails. Raises ConfigError if there must be."""
    found = choose_jail(config, environment)
    if isinstance(found, Jail):
        return found
    if config.has_tenants and config.simulated and config.jail != "off":
        raise ConfigError(
            "tenants share a simulated device, whose kernels are native code of this machine, and there is "
            f"no jail for it: {found.reason}",
            f"{found.next_step}; or give --jail off, if all of them may do what the monitor may",
        )
    log.warning("API servers have no jail", reason=found.reason, next_step=found.next_step)
    return None
