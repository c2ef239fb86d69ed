"""What is known of turns, as control.proto has it."""

from __future__ import annotations

from heapq import nlargest

from gpuferry.specs._generated import control_pb2

from ..arbiter.office import Office

NANO = 1e9
SHARES = 6  # of a device, that are shown over time


def turns_of_session(office: Office, device: int, session: int) -> control_pb2.SessionTurns:
    """What the session has of this GPU's time."""
    wishes = office.wishes(session)
    turns = control_pb2.SessionTurns(request=wishes.request, limit=wishes.limit)
    gpu = office.gpus.get(device)
    use = gpu.sessions.get(session) if gpu else None
    if gpu and use:
        turns.share = gpu.share(session)
        turns.working = use.holds
        turns.waits_seconds = use.waits / NANO
        turns.turns = use.turns
        turns.used_seconds = use.total / NANO
        turns.overruns = use.overrun
    return turns


def turns_of_device(office: Office, device: int) -> control_pb2.DeviceTurns:
    """How sessions take turns on this GPU."""
    sharing, gpu = office.sharing, office.gpus.get(device)
    turns = control_pb2.DeviceTurns(
        sharing=sharing.kind,
        tokens=sharing.at_once,
        window_seconds=sharing.window / NANO,
        arbiter=office.pid,
    )
    if gpu:
        turns.working = sum(use.holds for use in gpu.sessions.values())
        turns.waiting = sum(use.waits > 0 for use in gpu.sessions.values())
        turns.handed, turns.overruns = gpu.handed, gpu.overruns
        turns.waited_seconds, turns.own_seconds = gpu.waited / NANO, gpu.own / NANO
        used = sum(use.used for use in gpu.sessions.values())
        turns.share = used / gpu.span / sharing.at_once
        largest = nlargest(SHARES, ((use.used, session) for session, use in gpu.sessions.items() if use.used))
        for had, session in largest:
            turns.shares.add(session=session, share=had / gpu.span)
    return turns
