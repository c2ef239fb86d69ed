"""What is promised of each device's physical memory, and where sessions' memory is. No clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuferry.specs._generated import node_pb2

from .files import CopyFile

RESIDENT = node_pb2.RESIDENCE_RESIDENT
AWAY = (node_pb2.RESIDENCE_HOST, node_pb2.RESIDENCE_DISK)
UNDER_WAY = (node_pb2.RESIDENCE_LEAVING, node_pb2.RESIDENCE_RETURNING)


@dataclass(eq=False)
class Entry:
    """The memory that one API server has for its session."""

    server: int  # its key
    session: int
    devices: tuple[int, ...]
    allowance: int  # bytes that may be on each of its devices; changed by Books.allow
    where: int = RESIDENT
    host_bytes: int = 0  # of the files of its copies
    host_taken: int = 0  # what those in memory have of it: what was never written has none
    disk_bytes: int = 0
    needs: int = 0  # bytes on each of its devices, to come back: what is away, and arrays, which stayed
    came_at: float = -math.inf  # when it came back
    used_at: float = -math.inf  # when it last worked, as was known when it left
    leave_seconds: float = 0.0  # that it took last
    return_seconds: float = 0.0
    quota: int = 0
    copied_calls: int = -1  # how many calls its program had made when copies were made ahead
    program: bytes = b""  # a digest of what its processes know; empty: nobody can speak of it
    files: list[CopyFile] = field(default_factory=list)  # of its copies on the disk
    hides_files: bool = False  # it did not hand back all that an earlier monitor gave it

    @property
    def away(self) -> bool:
        """Whether its memory is on no device."""
        return self.where in AWAY

    @property
    def under_way(self) -> bool:
        """Whether it was leaving or returning when it was last heard of: an earlier monitor wanted that."""
        return self.where in UNDER_WAY

    @property
    def copy_bytes(self) -> int:
        """Bytes of the files of its copies."""
        return self.host_bytes + self.disk_bytes

    @property
    def host_promised(self) -> int:
        """Bytes of host memory that the files of its copies may still take."""
        return max(self.host_bytes - self.host_taken, 0)

    def note(self, told: node_pb2.Resides) -> None:
        """Note what its API server says of where its memory is, and of what the files in memory have."""
        self.where = told.where
        self.host_taken = min(told.host_taken, self.host_bytes)
        if self.away:
            self.needs = told.mapped + told.allowance

    @property
    def round_trip(self) -> float:
        """Seconds for leaving and coming back."""
        return self.leave_seconds + self.return_seconds


class Books:
    """Allowances by API server and device; a device has what none of them has."""

    def __init__(self, host_memory: int, disk: int) -> None:
        self._host, self._disk = host_memory, disk
        self._devices: dict[int, int] = {}
        self._entries: dict[int, Entry] = {}
        self._promised: dict[int, int] = {}  # by device: the sum of allowances
        self._programs: dict[bytes, list[Entry]] = {}

    def add_device(self, device: int, memory: int) -> None:
        """The device has so many bytes."""
        self._devices[device] = memory

    def free(self, device: int) -> int:
        """Bytes of the device that nobody may use; below 0: more is used than there is."""
        return self._devices.get(device, 0) - self._promised.get(device, 0)

    def memory(self) -> dict[int, int]:
        """Return how many bytes of memory each device has."""
        return dict(self._devices)

    def of_program(self, program: bytes) -> list[Entry]:
        """Return the entries of a program's processes, in the order in which they came."""
        return list(self._programs.get(program, ()))

    def name(self, entry: Entry, program: bytes) -> None:
        """Note of which program the entry's process is; empty: of none that anybody can speak of."""
        entry.program = program
        if program:
            self._programs.setdefault(program, []).append(entry)

    def crowded(self) -> list[int]:
        """Devices of which more was promised than there is."""
        return [
            device
            for device, memory in self._devices.items()
            if sum(one.quota for one in self.on(device)) > memory
        ]

    def allow(self, entry: Entry, allowance: int) -> None:
        """So many bytes may be on each of its devices from now on, and never more than its quota."""
        allowance = min(allowance, entry.quota)
        more, entry.allowance = allowance - entry.allowance, allowance
        if self._entries.get(entry.server) is entry:
            self._promise(entry.devices, more)

    def _promise(self, devices: tuple[int, ...], more: int) -> None:
        for device in devices:
            self._promised[device] = self._promised.get(device, 0) + more

    def _enter(self, entry: Entry) -> Entry:
        self.end(entry.server)
        self._entries[entry.server] = entry
        self._promise(entry.devices, entry.allowance)
        return entry

    def begin(
        self, server: int, session: int, devices: tuple[int, ...], quota: int, asks: bool = False
    ) -> Entry:
        """An API server gets a session. If all of its quota is free, on each of its devices, all of it is
        promised. Else, or where others wait for what is free (`asks`), it must ask.
        """
        fits = not asks and all(self.free(device) >= quota for device in devices)
        allowance = quota if fits else 0
        return self._enter(Entry(server, session, devices, allowance, quota=quota))

    def adopt(
        self,
        server: int,
        devices: tuple[int, ...],
        quota: int,
        told: node_pb2.Resides,
        asks: bool = False,
    ) -> Entry:
        """An earlier monitor gave this API server a session. `asks`: before it has more than that."""
        allowance = told.allowance if told.allowance or told.where in AWAY or asks else quota
        entry = Entry(server, told.session, devices, min(allowance, quota), quota=quota)
        most = quota * len(devices)
        entry.host_bytes, entry.disk_bytes = min(told.host_bytes, most), min(told.disk_bytes, most)
        entry.note(told)
        return self._enter(entry)

    def end(self, server: int) -> Entry | None:
        """The API server has nothing on its devices any more."""
        entry = self._entries.pop(server, None)
        if entry:
            self._promise(entry.devices, -entry.allowance)
            if entry.program:
                mates = self._programs[entry.program]
                mates.remove(entry)
                if not mates:
                    del self._programs[entry.program]
        return entry

    def liars(self) -> list[int]:
        """API servers that have made a file of their copies larger than it may be, or hide one."""
        return [
            one.server
            for one in self._entries.values()
            if one.hides_files or any(file.outgrown for file in one.files)
        ]

    def get(self, server: int) -> Entry | None:
        """What is known of an API server's session."""
        return self._entries.get(server)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def on(self, device: int) -> Iterator[Entry]:
        """Those that have, or had, memory of the device."""
        return (one for one in self._entries.values() if device in one.devices)

    @property
    def host_used(self) -> int:
        """Bytes of host memory that copies have."""
        return sum(one.host_bytes for one in self._entries.values())

    @property
    def host_promised(self) -> int:
        """Bytes of host memory that copies may still take, and that are free until then."""
        return sum(one.host_promised for one in self._entries.values())

    @property
    def disk_used(self) -> int:
        """Bytes of the disk that copies have."""
        return sum(one.disk_bytes for one in self._entries.values())

    @property
    def host_free(self) -> int:
        """Bytes of host memory that copies may still have."""
        return max(self._host - self.host_used, 0)

    @property
    def disk_free(self) -> int:
        """Bytes of the disk that copies may still have."""
        return max(self._disk - self.disk_used, 0)

    def in_host_memory(self) -> list[Entry]:
        """Those that are away, and whose copies, or a part of them, are in host memory."""
        return [one for one in self._entries.values() if one.away and one.host_bytes]

    def needless(self) -> list[Entry]:
        """Those whose copies could be given up, because their memory is on its device; those that came back
        first, first.
        """
        found = [one for one in self._entries.values() if one.where == RESIDENT and one.copy_bytes]
        return sorted(found, key=lambda one: one.came_at)
