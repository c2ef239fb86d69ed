"""Placements carried out: the session gets its API server, or its guest hears why it gets none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..door.handshake import CudaError, Reason, membership, welcome
from ..moves.orders import Orders
from ..pool.api_server import ApiServer
from ..pool.pool import Pool
from ..sessions.decision import Impossible, Placement
from ..sessions.placement import Placer
from ..sessions.session import Phase, Session
from ..settings.monitor import Config
from .handover import HandOver
from .programs import Programs
from .queue import Queue
from .refusals import Refusals
from .several import Several


class Grants:
    """What the policy's decisions come to. On the event loop's thread."""

    def __init__(
        self,
        config: Config,
        servers: Mapping[int, ApiServer],
        placer: Placer,
        pool: Pool,
        programs: Programs,
        several: Several,
        orders: Orders,
        queue: Queue,
        handover: HandOver,
        refusals: Refusals,
    ) -> None:
        self._config = config
        self._servers = servers  # by key
        self._placer = placer
        self._pool = pool
        self._programs = programs
        self._several = several
        self._orders = orders
        self._queue = queue
        self._handover = handover
        self._refusals = refusals

    def place(self, session: Session, placement: Placement) -> None:
        """An API server is idle for the session; if it has several devices, or a part of one by MPS, one is
        started for it.
        """
        tenant = session.hello.tenant
        if session.founds and not session.file and (why_not := self._programs.why_no_more(tenant, counted=1)):
            self.give_up(session, why_not)
            for device, server in placement.taken:
                self._placer.on_idle(device, server)
            return
        if not session.file and self._pool.percentage(session.hello.portion.limit):
            placement = placement.to_start()
        if not placement.devices:
            self.grant(session, placement)
        elif why_not := self._several.begin(session, placement):
            guest = self._queue.leave(session)
            if self._queue.forget(session):
                self._placer.on_complete(session.lease.number, time.monotonic())
            self._refusals.refuse(guest, Reason.NO_CAPACITY, why_not)

    def grant(self, session: Session, placement: Placement) -> None:
        """The guest hears of it at once, for WELCOME is known here; its API server a little later."""
        if session.file:
            self._orders.place_suspended(session, placement)
            return
        guest = self._queue.leave(session)
        server = self._servers[placement.server]
        grace = self._config.resume_grace if session.hello.resumable else 0
        proof = guest.welcome_proof
        agreed = session.hello.agreement.welcome
        if session.hello.program_id:
            agreed += membership(session.lease.number, not session.founds)
        frame = welcome(server.welcome, proof, session.id, placement.quota, int(grace * 1000), agreed)
        if not session.welcome:
            self._handover.welcome(guest, frame)
        elif session.welcome != frame:
            self._break_word(session, placement)
            return
        session.welcome, session.placement, session.server = frame, placement, server
        session.enter_phase(Phase.GRANTED)
        server.serve(session.id)
        self._handover.grant(session)

    def _break_word(self, session: Session, placement: Placement) -> None:
        """The API server died that its WELCOME was about, and this one is not like it."""
        assert session.guest
        if self._queue.forget(session):
            self._placer.on_complete(session.lease.number, time.monotonic())
        server = self._servers[placement.server]
        if server.own:
            server.dismiss("its session was promised other terms")
        else:
            self._placer.on_idle(placement.device, placement.server)
        self._refusals.refuse(
            session.guest, Reason.NO_CAPACITY, "its API server died, and another has other terms"
        )

    def reject(self, session: Session, why: Impossible) -> None:
        """What it asks for, this machine does not have."""
        if session.file:
            self._orders.cannot_be_placed(session, why.reason)
            return
        guest = self._queue.leave(session)
        self._queue.forget(session)
        error = CudaError.OUT_OF_MEMORY if why.memory else None
        self._refusals.refuse(guest, Reason.NO_CAPACITY, why.reason, error)

    def give_up(self, session: Session, text: str) -> None:
        guest = self._queue.leave(session)
        if self._queue.forget(session):
            self._placer.on_complete(session.lease.number, time.monotonic())
        self._refusals.refuse(guest, Reason.NO_CAPACITY, text)
