"""Keeps API servers alive on each device: starts or adopts them, notices deaths, replaces them at once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace

import structlog
from gpuferry.specs._generated import node_pb2

from ..devices.choice import CHECKED, INSTANCE_PREFIX
from ..jail.jail import Jail
from ..policy.portion import FULL
from ..service.rates import Sparing
from ..settings.monitor import Config
from . import mps
from .api_server import NOWHERE, ApiServer, Neighbourhood, PoolListener, State
from .channel import Channel, ChannelBroken
from .health import PAUSE_MOST, Health
from .process import Adopted, Launch, Stay
from .returns import Record, Returns

STARTING_MOST = 2 * (os.cpu_count() or 1)  # at once: more would only wait for each other
SURPLUS_SECONDS = 10.0  # for which an API server may be one too many
FILL_SECONDS = 0.005  # for which grants gather: to look at all API servers takes longer than one
CROWDED_SECONDS = 0.25  # until another start is tried where no descriptor was free

log = structlog.get_logger()


class Pool:
    """All API servers and keepers of this machine."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        returns: Returns | None,
        jail: Jail | None,
        spare: Callable[[int, bytes], int],
        events: PoolListener,
        control: mps.Mps | None = None,
    ) -> None:
        self._config = config
        self._mps = control
        self._jail = jail
        self.neighbourhood = Neighbourhood(config.has_tenants)
        checked = CHECKED if config.checks_tenants else {}
        self._server_launch = Launch(
            (*config.server_command, *(("--fixed-addresses",) if config.fixes_addresses else ())),
            environment,
            config.ready_timeout,
            jail,
            apart=checked,
            names=config.device_names,
            ahead=control.ready if control else None,
        )
        self._keeper_launch = Launch(config.keeper_command, environment, config.ready_timeout, jail)
        self._returns = returns  # how the next monitor finds API servers; none: they end with this one
        self._spare = (
            spare  # bytes of a device, and of its UUID if that is known, that nobody has or was promised
        )
        self._events = events
        self._turns = asyncio.Semaphore(STARTING_MOST)
        self._tasks: set[asyncio.Task[None]] = set()
        self._min_idle = config.min_idle
        self._health = {device: Health() for device in range(config.devices)}
        self._filling = False
        self._wished: Counter[int] = Counter()  # API servers beyond those that there should be, by device
        self._to_fill: set[int] = set()
        self.servers: dict[int, ApiServer] = {}
        self.keepers: dict[int, ApiServer] = {}
        self._notes = Sparing(log.info)  # of what a guest may bring about all the time
        self.failures = 0  # API servers that were never ready
        self.last_failure = ""

    def everyone(self) -> list[ApiServer]:
        """The API servers and the keepers of this moment, in a list of the caller's own."""
        return [*self.servers.values(), *self.keepers.values()]

    @property
    def _program(self) -> str:
        """What is started, as tenants and whoever reads `/readyz` may know it: where ours is, is the
        operator's affair.
        """
        program = self._config.server_command[0]
        return program if self._config.own_command else os.path.basename(program)

    @property
    def devices(self) -> int:
        """How many devices the pool has."""
        return self._config.devices

    @property
    def divided(self) -> bool:
        """Whether a device may be an instance of a GPU (MIG), of which a process can have one only."""
        return any(map(self.is_instance, range(len(self._config.device_names))))

    def is_instance(self, device: int) -> bool:
        """Whether the device is an instance of a GPU (MIG)."""
        names = self._config.device_names
        return device < len(names) and names[device].startswith(INSTANCE_PREFIX)

    def start(self) -> None:
        """Start API servers on each device, and replace those that end, until `stop`."""
        self._filling = True
        for device in range(self._config.devices):
            self._fill(device)

    def adopt(
        self,
        channel: Channel,
        record: Record,
        returned: node_pb2.Returned,
        home: node_pb2.Home | None = None,
    ) -> None:
        """Let an API server, or a keeper, of an earlier monitor in. `home`: to be told to one of release 0.1.
        Raises OSError if its process is gone.
        """
        assert self._returns
        returns = self._returns if home is None else None
        told = home or self._returns.home
        ready = record.description or returned.ready
        process = Adopted(record.pid, record.began, record.group, self._stay(record))
        if ready.keeper:
            keeper = ApiServer((NOWHERE,), Health(), lambda _: None, self._events, self.neighbourhood)
            log.info("keeper adopted", keeper=record.pid, session=returned.grant.session)
            life = keeper.adopt(channel, process, record, returned, told, returns)
            self._attend_to(self._attend_keeper(keeper, life))
            return
        server = ApiServer(
            ready.devices or (ready.device,),
            self._health.setdefault(ready.device, Health()),
            self._fill,
            self._events,
            self.neighbourhood,
            self.percentage(returned.grant.portion.limit or FULL),
        )
        log.info("server adopted", server=record.pid, gpu=server.device, session=returned.grant.session)
        self._keep(server, server.adopt(channel, process, record, returned, told, returns))

    def bury(self, record: Record) -> None:
        """An API server of an earlier monitor does not come back: nothing of it shall be left."""
        assert self._returns
        with contextlib.suppress(OSError):
            Adopted(record.pid, record.began, record.group, None).kill()
        if stay := self._stay(record):
            stay.leave()
        self._returns.forget(record.name)

    @property
    def all_back(self) -> bool:
        """Whether each API server of an earlier monitor that is waited for has come back, or is gone."""
        return self._returns is None or self._returns.all_back.is_set()

    def _stay(self, record: Record) -> Stay | None:
        if not self._jail or not record.name:
            return None
        return self._jail.readopt(record.uid, record.cgroup, record.pid, record.began)

    def start_keeper(self) -> ApiServer:
        """Start a process without a device; its `ready_or_gone` says when it can be given a session."""
        keeper = ApiServer((NOWHERE,), Health(), lambda _: None, self._events, self.neighbourhood)
        life = keeper.run(self._keeper_launch, self._returns, self._turns)
        self._attend_to(self._attend_keeper(keeper, life))
        return keeper

    @property
    def counted(self) -> bool:
        """Whether the kernel counts the memory of those jails."""
        return self._jail is not None and self._jail.counts_memory

    @property
    def jailed(self) -> bool:
        """Whether API servers are in jails."""
        return self._jail is not None

    @property
    def why_no_tenants(self) -> str | None:
        """Why tenants may not come; None: they may."""
        if self._mps:
            return "its programs share MPS, under which a fault in one program's kernel ends all on the GPU"
        if self._jail is None and self._config.simulated and self._config.jail != "off":
            return "it has no jails: see its log"
        return None

    def tenants_come(self) -> None:
        """From now on no process serves two sessions; those that did, or could reach each other, are
        replaced.
        """
        if self.neighbourhood.tenants:
            return
        self.neighbourhood.tenants = True
        log.info("tenants come: each session gets a process of its own")
        for server in [one for one in self.servers.values() if one.state is State.IDLE]:
            self._dismiss(server, "tenants come")

    def several_tenants(self, several: bool) -> None:
        """Whether places are left to tenants that have no session: then whoever took one finds another, while
        the API server that it had is replaced.
        """
        self._min_idle = max(self._config.min_idle, several)
        for device in range(self._config.devices):
            self._fill(device)

    def percentage(self, limit: int) -> int:
        """The percentage of a GPU's threads that a session with this limit gets by MPS; 0: all."""
        return mps.percentage(limit) if self._mps else 0

    def start_own(self, devices: Sequence[int], percentage: int) -> ApiServer:
        """Start an API server on all of these devices, for one session; the pool does not replace it."""
        launch = self._server_launch
        if percentage:
            environment = {**launch.environment, mps.PERCENTAGE: str(percentage)}
            launch = replace(launch, environment=environment)
        server = ApiServer(
            devices, self._health[devices[0]], lambda _: None, self._events, self.neighbourhood, percentage
        )
        self._keep(server, server.run(launch, self._returns, self._turns))
        return server

    def want_server(self, device: int) -> None:
        """A session shall move to the device while no API server is idle there: have one more."""
        self._wished[device] += 1
        self._fill(device)

    def want_no_server(self, device: int) -> None:
        """Take one call of `want_server` for the device back."""
        self._wished[device] -= 1
        self._fill(device)

    def can_start(self, device: int) -> bool:
        """Whether the device has memory for one more API server's context."""
        cost = self._config.context_cost
        return not cost or self._spare_memory(device) >= cost

    def _spare_memory(self, device: int) -> int:
        return self._spare(device, self.uuids().get(device, b""))

    def uuids(self) -> dict[int, bytes]:
        """UUIDs of the devices on which an API server lives, by ordinal."""
        found: dict[int, bytes] = {}
        for server in self.servers.values():
            if server.device not in found and server.ready:
                found[server.device] = server.ready.device_uuid
        return found

    def problems(self) -> dict[int, str]:
        """Why no more API servers live on a device, by ordinal; without those on which they do."""
        return {device: health.reason for device, health in self._health.items() if health.reason is not None}

    def takes_guests(self, device: int) -> bool:
        """Whether a guest could have an API server of the device: one is idle, or whoever ends a session is
        followed by another.
        """
        here = [server for server in self.servers.values() if server.device == device and server.ready]
        return any(one.state is State.IDLE for one in here) or (
            bool(here) and self._health[device].reason is None
        )

    def _fill_soon(self, device: int) -> None:
        if device not in self._to_fill:
            self._to_fill.add(device)
            asyncio.get_running_loop().call_later(FILL_SECONDS, self._fill, device)

    def _fill(self, device: int) -> None:
        self._to_fill.discard(device)
        if not self._filling or device >= self._config.devices or self._health[device].resting:
            return
        here = self._here(device)
        wanted = self._wanted(device, here)
        if len(here) > wanted:
            asyncio.get_running_loop().call_later(SURPLUS_SECONDS, self._trim, device)
        for _ in range(wanted - len(here)):
            server = ApiServer(
                (device,), self._health[device], self._fill_soon, self._events, self.neighbourhood
            )
            self._keep(
                server,
                server.run(self._server_launch, self._returns, self._turns),
            )

    def _here(self, device: int) -> list[ApiServer]:
        """Those that the device has for whoever comes."""
        return [
            server
            for server in self.servers.values()
            if server.device == device and not server.own and server.state is not State.STOPPING
        ]

    def _wanted(self, device: int, here: list[ApiServer]) -> int:
        """How many there should be: more than the pool while too few are idle and memory is to spare."""
        config = self._config
        wanted = sum(s.state is State.BUSY for s in here) + self._min_idle
        if self._wished[device]:
            return max(wanted, config.pool, sum(s.state is State.BUSY for s in here) + self._wished[device])
        if wanted <= config.pool:
            return config.pool
        cost = config.context_cost
        return (
            wanted
            if not cost
            else min(wanted, max(config.pool, len(here) + self._spare_memory(device) // cost))
        )

    def _trim(self, device: int) -> None:
        """Those that were started when many were busy are not kept for ever."""
        here = self._here(device)
        idle = [s for s in here if s.state is State.IDLE]
        for server in idle[: max(len(here) - self._wanted(device, here), 0)]:
            self._dismiss(server, "not needed any more")

    def _dismiss(self, idle: ApiServer, reason: str) -> None:
        idle.dismiss(reason)
        self._events.server_dismissed(idle)

    def _keep(self, server: ApiServer, life: Coroutine[None, None, None]) -> None:
        self.servers[server.key] = server
        for device in server.devices:
            self._withhold_contexts(device)
        self._attend_to(self._attend(server, life))

    def _withhold_contexts(self, device: int) -> None:
        """Those of more API servers than the headroom is meant for."""
        more = sum(device in s.devices for s in self.servers.values()) - self._config.pool
        self._events.contexts_withheld(device, max(more, 0) * self._config.context_cost)

    def _attend_to(self, life: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(life)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend_keeper(self, keeper: ApiServer, life: Coroutine[None, None, None]) -> None:
        self.keepers[keeper.key] = keeper
        try:
            await life
        except (OSError, ChannelBroken) as error:
            keeper.end_reason = str(error)
        finally:
            del self.keepers[keeper.key]
            keeper.ready_or_gone.set()
            self._events.server_lost(keeper)
        log.info("keeper ended", keeper=keeper.pid, reason=keeper.end_reason)

    async def _attend(self, server: ApiServer, life: Coroutine[None, None, None]) -> None:
        crowded_out = False
        try:
            await life
        except OSError as error:
            crowded_out = error.errno in (errno.EMFILE, errno.ENFILE)
            server.end_reason = f"{self._program}: {error.strerror or error}"
        except ChannelBroken as error:
            server.end_reason = str(error)
        finally:
            del self.servers[server.key]
            for device in server.devices:
                self._withhold_contexts(device)
            if not server.ready and not server.dismissed:
                self.failures += 1
                self.last_failure = server.end_reason
            self._events.server_lost(server)
        self._tell_end(server)
        if crowded_out:  # no fault of the device: connections that wait have all descriptors
            asyncio.get_running_loop().call_later(CROWDED_SECONDS, self._fill, server.device)
        elif not server.own:
            self._replace(server)

    def _tell_end(self, server: ApiServer) -> None:
        fields = {"server": server.pid, "gpu": server.device, "reason": server.end_reason}
        if not server.dismissed:
            log.warning("server ended", **fields)
        elif server.ready:
            log.info("server ended", **fields)
        else:
            self._notes.say("server ended", server.device, **fields)

    def _replace(self, server: ApiServer) -> None:
        device, health = server.device, self._health[server.device]
        pause = health.server_died(server.ready is not None, server.served, server.age)
        if not pause:
            self._fill(device)
            return
        alone = not any(s.ready for s in self.servers.values() if s.device == device)
        if alone and health.hopeless:
            self._take_out(device, server.end_reason)
        elif (alone or health.hopeless) and not health.out:
            health.reason = server.end_reason
        self._rest(device, pause)

    def lose(self, device: int, reason: str) -> None:
        """The device failed, as somebody else found out: its sessions are told, and its API servers end."""
        self._take_out(device, reason)
        for server in [s for s in self.servers.values() if device in s.devices and s.state is not State.BUSY]:
            server.kill(reason)
        self._rest(device, PAUSE_MOST)

    def _take_out(self, device: int, reason: str) -> None:
        health = self._health[device]
        if not health.out:
            health.out, health.reason = True, reason
            log.error("device taken out", gpu=device, reason=reason)
            self._events.device_lost(device, reason)

    def _rest(self, device: int, pause: float) -> None:
        self._health[device].resting = True
        asyncio.get_running_loop().call_later(pause, self._try_again, device)

    def _try_again(self, device: int) -> None:
        self._health[device].resting = False
        self._fill(device)

    async def stop(self) -> None:
        """End every API server; returns when all are reaped."""
        self._filling = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
