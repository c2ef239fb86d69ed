"""What API servers tell, passed on to everybody who must know."""

from __future__ import annotations

from collections.abc import Sequence

from gpuferry.specs._generated import migration_pb2, node_pb2

from .api_server import ApiServer, PoolListener
from .channel import HasFileno


class PoolEvents(PoolListener):
    """Passes every event on to its subscribers at once, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._listeners: list[PoolListener] = []

    def subscribe(self, listener: PoolListener) -> None:
        """Call the listener for every event from now on."""
        self._listeners.append(listener)

    def server_ready(self, server: ApiServer) -> None:
        for listener in self._listeners:
            listener.server_ready(server)

    def session_granted(self, server: ApiServer, session: int) -> None:
        for listener in self._listeners:
            listener.session_granted(server, session)

    def session_started(self, session: int) -> None:
        for listener in self._listeners:
            listener.session_started(session)

    def session_ended(self, server: ApiServer, ended: node_pb2.SessionEnded) -> None:
        for listener in self._listeners:
            listener.session_ended(server, ended)

    def server_dismissed(self, server: ApiServer) -> None:
        for listener in self._listeners:
            listener.server_dismissed(server)

    def server_lost(self, server: ApiServer) -> None:
        for listener in self._listeners:
            listener.server_lost(server)

    def server_returned(self, server: ApiServer, returned: node_pb2.Returned) -> None:
        for listener in self._listeners:
            listener.server_returned(server, returned)

    def moving(self, server: ApiServer, moving: migration_pb2.Moving) -> None:
        for listener in self._listeners:
            listener.moving(server, moving)

    def moved(self, server: ApiServer, moved: migration_pb2.Moved) -> None:
        for listener in self._listeners:
            listener.moved(server, moved)

    def taken_over(self, server: ApiServer, session: int) -> None:
        for listener in self._listeners:
            listener.taken_over(server, session)

    def launched(self, session: int) -> None:
        for listener in self._listeners:
            listener.launched(session)

    def shared(self, session: int) -> None:
        for listener in self._listeners:
            listener.shared(session)

    def wanted(self, server: ApiServer, fetch: node_pb2.Fetch) -> None:
        for listener in self._listeners:
            listener.wanted(server, fetch)

    def exported(
        self, server: ApiServer, exported: node_pb2.Exported, descriptors: Sequence[HasFileno]
    ) -> None:
        for listener in self._listeners:
            listener.exported(server, exported, descriptors)

    def device_lost(self, device: int, reason: str) -> None:
        for listener in self._listeners:
            listener.device_lost(device, reason)

    def contexts_withheld(self, device: int, size: int) -> None:
        for listener in self._listeners:
            listener.contexts_withheld(device, size)

    def resides(self, server: ApiServer, told: node_pb2.Resides) -> None:
        for listener in self._listeners:
            listener.resides(server, told)

    def room_wanted(self, server: ApiServer, wanted: node_pb2.RoomWanted) -> None:
        for listener in self._listeners:
            listener.room_wanted(server, wanted)
