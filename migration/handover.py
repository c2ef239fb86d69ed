"""How the source of a migration gives the guest's socket to a keeper, which takes over in its place where
there is a link.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

from google.protobuf.message import DecodeError
from gpuferry.native.descriptors import receive
from gpuferry.specs._generated import handover_pb2

from .errors import LinkBroken, Lost, Refused

PACKET = 256 << 10  # what TLS holds of two connections is in it
DESCRIPTORS = 2
PATIENCE = 20.0
Custody = handover_pb2.Custody


def give(
    pair: socket.socket, handover: handover_pb2.Handover, descriptors: list[int], patience: float = PATIENCE
) -> None:
    """Give the keeper the guest's socket, and the link if there is one. Returns once it has the session.
    Raises Lost if that is not certain.
    """
    try:
        socket.send_fds(pair, [handover.SerializeToString()], descriptors, socket.MSG_NOSIGNAL)
    except OSError as error:
        raise LinkBroken(f"the keeper of the guest's connection is gone: {error.strerror}") from None
    taking_over = False
    until = time.monotonic() + patience
    while True:
        custody = _answer(pair, until) or _last_word(pair)
        if custody is None:
            text = "the keeper of the guest's connection does not answer"
            raise Lost(text) if taking_over else LinkBroken(text)
        if custody.stage == Custody.TAKEN:
            return
        if custody.stage == Custody.LOST:
            raise Lost(custody.reason)
        if custody.stage == Custody.REFUSED:
            raise Refused(custody.reason)
        taking_over = True


def _answer(pair: socket.socket, until: float) -> handover_pb2.Custody | None:
    poller = select.poll()
    poller.register(pair, select.POLLIN)
    if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
        return None
    try:
        packet = pair.recv(PACKET)
        return Custody.FromString(packet) if packet else None
    except (OSError, DecodeError):
        return None


def _last_word(pair: socket.socket) -> handover_pb2.Custody | None:
    """Too late. After this the keeper cannot say anything, and what it cannot say it does not do."""
    with contextlib.suppress(OSError):
        pair.shutdown(socket.SHUT_RD)
    return _answer(pair, time.monotonic())


def take(pair: socket.socket) -> tuple[handover_pb2.Handover, list[socket.socket]] | None:
    """What the source gives this keeper; None if it gives nothing any more."""
    try:
        packet, descriptors = receive(pair, PACKET, DESCRIPTORS)
    except OSError:
        return None
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    with contextlib.suppress(DecodeError):
        handover = handover_pb2.Handover.FromString(packet)
        if packet and len(sockets) == (2 if handover.take_over else 1):
            return handover, sockets
    for each in sockets:
        each.close()
    return None


def say(pair: socket.socket, stage: handover_pb2.Custody.Stage, reason: str = "") -> bool:
    """Tell the source a step. Returns False if it cannot hear it any more."""
    try:
        pair.send(Custody(stage=stage, reason=reason[:1000]).SerializeToString(), socket.MSG_NOSIGNAL)
    except OSError:
        return False
    return True
