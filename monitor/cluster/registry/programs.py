"""Which GPU servers have a program's lease, or other programs of its function. No I/O, no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gpuferry.specs._generated import registry_pb2

PROGRAMS_MOST = 4096  # that one server tells of
ID_SIZE = 16  # bytes of a program's digest by which it is known

NOWHERE: frozenset[str] = frozenset()


class Programs:
    """What the newest heartbeats say of programs; servers are named by their addresses."""

    def __init__(self, servers: Iterable[registry_pb2.Server] = ()) -> None:
        self._homes: dict[bytes, str] = {}
        self._functions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for server in servers:
            for one in server.load.programs if server.alive else ():
                address = server.registration.address
                # The server that it left tells of it, too, until all of its processes have followed.
                if one.id and (one.devices or one.id not in self._homes):
                    self._homes[one.id] = address
                if one.function and one.devices:
                    self._functions[one.tenant, one.function].add(address)

    def home(self, program: bytes) -> str | None:
        """The server that has the program's lease: all of its processes share that. None: there is none."""
        return self._homes.get(program[:ID_SIZE]) if program else None

    def holders(self, tenant: str, function: str) -> frozenset[str]:
        """The servers where programs of this tenant's function are, and what they have loaded."""
        return frozenset(self._functions.get((tenant, function), NOWHERE))
