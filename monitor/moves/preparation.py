"""What is arranged for a migration before its source and destination are told, and undone if it fails."""

from __future__ import annotations

import asyncio

from ..pool.pool import Pool
from ..sessions.placement import Placer
from .migration import Migration


class Preparations:
    """API servers that the pool starts for a migration, a place in the queue, a task that goes about it."""

    def __init__(self, placer: Placer, pool: Pool) -> None:
        self._placer = placer
        self._pool = pool

    def wait_for_server(self, migration: Migration, device: int) -> bool:
        """Whether the migration must wait for API servers on this device, one for each process of its
        program; the pool starts them then.
        """
        room = self._placer.devices.get(device)
        count = len(migration.gang.members)
        if not room or room.out or len(room.gpu.idle) >= count:
            return False
        if migration.wished_device is None:
            migration.wished_device, migration.wished = device, count
            for _ in range(count):
                self._pool.want_server(device)
        return True

    def server_found(self, migration: Migration) -> None:
        """The migration has its API servers: the pool need not start any."""
        if migration.wished_device is not None:
            device, migration.wished_device = migration.wished_device, None
            for _ in range(migration.wished):
                self._pool.want_no_server(device)

    def call_off(self, migration: Migration) -> None:
        """The migration has failed: take back everything that was arranged for it."""
        session, lease = migration.session, migration.gang.lease.number
        self.server_found(migration)
        migration.decision_pending = False
        if session.file and not migration.orders_given and lease in self._placer.waiting():
            self._placer.on_leave(lease)
        if migration.task and migration.task is not asyncio.current_task():
            migration.task.cancel()
