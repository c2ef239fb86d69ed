"""Memory, events and pools between processes of one program, by way of the monitor."""

from __future__ import annotations

import os

from gpuferry.specs._generated import node_pb2

from ._core import Core
from .control import DESCRIPTORS, Control
from .session import Session


class Ipc:
    """Asks the monitor for what a session wants to open, and answers what other processes ask for."""

    def __init__(self, core: Core, control: Control) -> None:
        self._core = core
        self._control = control

    def ask(self, session: Session) -> None:
        """Ask for what the session wants to open and other processes of its program have exported."""
        while wanted := self._core.wanted():
            number, exporter, token = wanted
            fetch = node_pb2.Fetch(session=session.id, number=number, exporter=exporter, token=token)
            self._control.send(node_pb2.FromServer(fetch=fetch))
        if self._control.lost_at is not None:
            self._core.give_up_imports()

    def fetched(self, fetched: node_pb2.Fetched, descriptors: list[int]) -> None:
        """Deliver the answer or a part of it, with its descriptors; what does not fit together is none."""
        offer = fetched.offer
        sound = len(descriptors) == len(offer.pages) == len(offer.extents)
        parts = list(zip(descriptors, offer.pages, offer.extents, strict=True)) if sound else []
        for each in descriptors[len(parts) :]:
            os.close(each)
        found = offer.found and sound
        self._core.deliver(fetched.number, found, found and offer.more, offer.offset, offer.bytes, parts)

    def export(self, session: Session | None, export: node_pb2.Export) -> None:
        """Send what another process of the program wants to open, if `session` has exported it."""
        here = session is not None and session.id == export.session
        ours = here and session is not None and (session.restoring if export.arriving else session.ours)
        found = self._core.export(export.token, export.seat) if ours else None
        offset, size, parts = found or (0, 0, [])
        for begin in range(0, max(len(parts), 1), DESCRIPTORS):
            some = parts[begin : begin + DESCRIPTORS]
            offer = node_pb2.Offer(
                found=found is not None,
                more=begin + DESCRIPTORS < len(parts),
                offset=offset,
                bytes=size,
                pages=[pages for _, pages, _ in some],
                extents=[extent for _, _, extent in some],
            )
            exported = node_pb2.Exported(session=export.session, number=export.number, offer=offer)
            descriptors = [descriptor for descriptor, _, _ in some]
            self._control.send(node_pb2.FromServer(exported=exported), descriptors)
            for each in descriptors:
                os.close(each)
