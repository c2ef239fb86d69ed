"""Sessions of several devices, or of a percentage of one: each gets an API server that is started for it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..pool.api_server import ApiServer
from ..pool.pool import Pool
from ..sessions.decision import Placement
from ..sessions.placement import Placer
from ..sessions.session import Session

ATTEMPTS = 3  # API servers that may fail to start before the guest is told so


def named(devices: tuple[int, ...]) -> str:
    """The devices as people call them: `GPU 1`, `GPUs 0, 2`."""
    return f"GPU{'s' * (len(devices) > 1)} {', '.join(map(str, devices))}"


class Several:
    """The sessions whose API server is being started for them. The policy's books have
    their lease already, so that all of the devices are theirs, or none is.
    """

    def __init__(self, placer: Placer, pool: Pool) -> None:
        self._placer = placer
        self._pool = pool
        self._starting: dict[int, tuple[Session, Placement]] = {}  # by API server
        self._failures = WeakKeyDictionary[Session, int]()

    def begin(self, session: Session, placement: Placement) -> str | None:
        """Start an API server on the placement's devices for the session. Returns why that cannot be; None:
        it is under way. The idle API servers that the policy chose are idle again; for a process that joins
        a lease it chose none.
        """
        for device, idle in placement.taken:
            self._placer.on_idle(device, idle)
        if self._pool.divided and len(placement.devices) > 1:
            return "GPUs are divided here (MIG), and CUDA shows a program one instance: ask for one GPU"
        full = tuple(device for device in placement.devices if not self._pool.can_start(device))
        if full:
            return f"{named(full)}: no memory for the context of another API server"
        if self._failures.get(session, 0) >= ATTEMPTS:
            return f"no API server starts on {named(placement.devices)}: {self._pool.last_failure}"
        percentage = self._pool.percentage(session.hello.portion.limit)
        server = self._pool.start_own(placement.devices, percentage)
        self._starting[server.key] = session, placement
        return None

    def ready(self, server: ApiServer) -> tuple[Session, Placement] | None:
        """Return the session that this API server was started for; None if that does not wait any more."""
        session, placement = self._starting.pop(server.key, (None, None))
        if session is None or placement is None:
            return None
        self._failures.pop(session, None)
        return session, placement._replace(server=server.key)

    def lost(self, server: ApiServer) -> Session | None:
        """The session for which the API server was started that is gone, if it was."""
        session, _ = self._starting.pop(server.key, (None, None))
        if session is not None:
            self._failures[session] = self._failures.get(session, 0) + 1
        return session

    def is_starting(self, session: Session) -> bool:
        """Whether the session has its devices, and waits for its API server."""
        return any(one is session for one, _ in self._starting.values())

    def withdraw(self, session: Session) -> bool:
        """The session does not wait any more. Whether it had its devices."""
        for key, (one, _) in self._starting.items():
            if one is session:
                del self._starting[key]
                self._pool.servers[key].abandon("its session does not wait any more")
                return True
        return False

    def sessions(self) -> dict[int, Session]:
        """Those whose API server is being started, by number."""
        return {session.id: session for session, _ in self._starting.values()}

    def reasons(self) -> dict[int, str]:
        """What they wait for, by number."""
        return {
            session.id: f"its API server on {named(placement.devices)} is being started"
            for session, placement in self._starting.values()
        }
