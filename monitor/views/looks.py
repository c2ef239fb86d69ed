"""What a program's own tools see of it (NVML in the guest): its devices and processes, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from gpuferry.native.tls.stream import Connection
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame

from ..broker.broker import Broker
from ..devices.gpus import Gpu, GpuStats
from ..door.guests import Farewells, Guest, Reception, address_of
from ..door.handshake import Hello, Reason, Refusal, Resume
from ..pool.descriptions import Descriptions
from ..pool.pool import Pool
from ..service.waiting import within
from ..sessions.session import Session
from ..tenants.tenancy import Tenancy

STATS_SECONDS = 0.3
ASKING_MOST = 64  # looks at once for which API servers are asked
PERIOD_SECONDS = 0.1  # shortest over which utilisation is measured
UNKNOWN = -1
WAIT_SECONDS = 5.0  # for devices of which no API server has said anything yet; a guest waits for twice that
# NVIDIA's first driver for each CUDA, where nobody asks NVML for the one that is there (--sample 0).
FIRST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# Of CUdevice_attribute.
MAJOR, MINOR, PCI_BUS, PCI_DEVICE, PCI_DOMAIN = 75, 76, 33, 34, 50


def _same_program(one: Hello, other: Hello) -> bool:
    """A process that does not say which program it is part of is one by itself."""
    return one.program_id == other.program_id if other.program_id else one.pid == other.pid


def sessions_of(hello: Hello, address: str, running: Sequence[Session]) -> list[Session]:
    """The sessions that somebody at `address` may see who says `hello`: those of its program; where it has
    none, as a tool's program has, those of its tenant's programs on its machine.
    """
    near = [
        session
        for session in running
        if address_of(session.peer) == address
        and (session.hello.tenant, session.hello.proven) == (hello.tenant, hello.proven)
    ]
    own = [session for session in near if _same_program(session.hello, hello)]
    return own or near


class Looks(Reception):
    """Answers guests that only look, and hands the others to the broker."""

    def __init__(
        self, broker: Broker, pool: Pool, descriptions: Descriptions, gpus: GpuStats, tenancy: Tenancy
    ) -> None:
        self._broker = broker
        self._pool = pool
        self._descriptions = descriptions
        self._gpus = gpus
        self._tenancy = tenancy
        self._farewells = Farewells()
        self._busy: dict[int, tuple[float, float, int]] = {}  # of sessions: when, busy seconds, per cent
        self._tasks: set[asyncio.Task[None]] = set()

    def arrive(self, guests: Sequence[Guest]) -> None:
        """Guests proved themselves: answer those that only look, and pass the others on to the broker."""
        for guest in guests:
            if guest.hello.looks:
                self._look(guest)
        if others := [guest for guest in guests if not guest.hello.looks]:
            self._broker.arrive(others)

    def quiet(self) -> None:
        """No other guest is at the door."""
        self._broker.quiet()

    def resume(self, connection: Connection, peer: str, resume: Resume) -> None:
        """A guest says that it lost the connection of a session."""
        self._broker.returning.come(connection, peer, resume)

    def turn_away(self, connection: Connection, peer: str, refusal: Refusal) -> None:
        """A guest did not prove itself, or asks for what cannot be."""
        self._broker.refusals.turn_away(connection, peer, refusal)

    def _look(self, guest: Guest) -> None:
        if refusal := self._tenancy.why_no_call(guest.hello.tenant):  # a look is a call like others
            self.turn_away(guest.connection, guest.peer, Refusal(Reason.NO_CAPACITY, refusal))
        elif len(self._tasks) < ASKING_MOST:
            task = asyncio.ensure_future(self._answer(guest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:  # a crowd is told what was last known, and holds no connections
            self._tell(guest, self._seen_by(guest))

    async def _answer(self, guest: Guest) -> None:
        with contextlib.suppress(asyncio.TimeoutError):  # then it sees those that are known
            await within(WAIT_SECONDS, self._descriptions.several(guest.hello.devices))
        asked = [session.server for session in self._seen_by(guest) if session.server]
        await asyncio.gather(*(server.refresh_stats(STATS_SECONDS) for server in asked))
        self._tell(guest, self._seen_by(guest))  # some may be over

    def _seen_by(self, guest: Guest) -> list[Session]:
        return sessions_of(guest.hello, address_of(guest.peer), self._broker.running())

    def _tell(self, guest: Guest, seen: Sequence[Session]) -> None:
        self._farewells.send(guest.connection, self._frame(guest, seen))

    def _frame(self, guest: Guest, mine: Sequence[Session]) -> bytes:
        placed: dict[int, list[Session]] = {}  # by device
        for session in mine:
            if session.server and not session.server.is_keeper:
                for device in session.server.devices:
                    placed.setdefault(device, []).append(session)
        # What it has, else what it would be given.
        shown = (
            sorted(placed.keys() & self._descriptions.welcomes.keys())
            or self._choice()[: guest.hello.devices]
        )
        told = [self._descriptions.of(ordinal) for ordinal in shown]
        uuids = [device.uuid for device in told]
        parts = [
            self._device(ordinal, device, guest.hello, placed.get(ordinal, ()), uuids).pack()
            for ordinal, device in zip(shown, told, strict=True)
        ]
        processes = [
            frames.LookProcess(place, mapped(session, ordinal), session.hello.pid).pack()
            for place, ordinal in enumerate(shown)
            for session in placed.get(ordinal, ())
        ]
        version = self._descriptions.driver_version(shown[0]) if shown else 0
        driver = (self._gpus.driver or FIRST_DRIVERS.get(version // 1000, "")).encode()[:31]
        head = frames.Devices(guest.welcome_proof, version, len(parts), len(processes), driver)
        return frames.frame(Frame.DEVICES, head.pack() + b"".join(parts + processes))

    def _choice(self) -> list[int]:
        """The devices that a program may be given: those on which API servers live come first."""
        problems = self._pool.problems()
        return sorted(self._descriptions.welcomes, key=lambda ordinal: (ordinal in problems, ordinal))

    def _device(
        self,
        ordinal: int,
        told: frames.Device,
        hello: Hello,
        here: Sequence[Session],
        shown: Sequence[bytes],
    ) -> frames.LookDevice:
        gpu = self._gpus.get(told.uuid)
        default = next((room.default_quota for room in self._broker.rooms() if room.ordinal == ordinal), 0)
        quotas = {session.lease.number: session.quota for session in here}  # processes share their program's
        quota = sum(quotas.values()) or hello.memory or default
        attributes = told.attributes
        now, most = ([UNKNOWN if n is None else n for n in figures] for figures in _figures(gpu))
        place = attributes[PCI_DOMAIN], attributes[PCI_BUS], attributes[PCI_DEVICE]
        return frames.LookDevice(
            name=told.name.partition(b"\0")[0][:95],
            pci="{:08X}:{:02X}:{:02X}.0".format(*place).encode(),
            instance=self._pool.is_instance(ordinal),
            uuid=told.uuid,
            memory_total=min(quota, told.total_memory),
            memory_used=sum(mapped(session, ordinal) for session in here),
            peers=sum(self._gpus.reaches(told.uuid, other) << i for i, other in enumerate(shown[:64])),
            major=attributes[MAJOR],
            minor=attributes[MINOR],
            utilization=min(100, sum(map(self._utilization, here))),
            temperature=UNKNOWN if gpu is None or gpu.temperature is None else round(gpu.temperature),
            power=UNKNOWN if gpu is None or gpu.power is None else round(gpu.power * 1000),
            clocks=(*now[:2], *most[:2]),
            link=(*now[2:], *most[2:]),
        )

    def _utilization(self, session: Session) -> int:
        """Per cent of the time since the last look in which kernels of the session ran."""
        assert session.server
        now, busy = time.monotonic(), session.server.stats.busy_seconds
        since, before, percent = self._busy.get(session.id, (now, busy, 0))
        if session.id not in self._busy or now - since >= PERIOD_SECONDS:
            percent = min(100, round(100 * (busy - before) / (now - since))) if now > since else 0
            self._busy[session.id] = (now, busy, max(percent, 0))
        for gone in self._busy.keys() - self._broker.sessions.keys():
            del self._busy[gone]
        return self._busy[session.id][2]


def _figures(gpu: Gpu | None) -> tuple[list[int | None], list[int | None]]:
    """Clocks and link of a device, now and at most."""
    return (gpu.now, gpu.most) if gpu else ([None] * 4, [None] * 4)


def mapped(session: Session, device: int) -> int:
    """Bytes of the device's memory that the session has, as its API server last said."""
    server = session.server
    if not server or server.stats.session != session.id:
        return 0
    on_each = dict(zip(server.devices, server.stats.mapped_on, strict=False))
    return on_each.get(device, 0) if server.several else server.stats.memory_mapped
