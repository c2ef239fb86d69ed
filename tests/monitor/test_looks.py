"""Who only looks is answered, whatever becomes of what it looks at."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.views.looks import Looks
from gpuferry.specs._generated.frames import Frame

from tests.monitor.fake_guest import read_frame


class Broker:
    """One session runs, which is over when its API server has said what it uses."""

    def __init__(self) -> None:
        hello = Hello(b"", 1, 0, "acme", "", "p")
        server = SimpleNamespace(refresh_stats=self._end, is_keeper=False, devices=[0])
        self.sessions: dict[int, Any] = {7: SimpleNamespace(id=7, hello=hello, peer="unix", server=server)}

    async def _end(self, _: float) -> None:
        self.sessions.clear()

    def running(self) -> list[Any]:
        return list(self.sessions.values())


def test_a_session_that_ends_while_it_is_asked_for() -> None:
    """Its looker was hung up on, and a traceback was in the log."""

    async def main() -> int:
        broker, ours, theirs = Broker(), *socket.socketpair()
        pool: Any = SimpleNamespace(servers={})
        gpus: Any = SimpleNamespace(driver="")
        tenancy: Any = SimpleNamespace(why_no_call=lambda tenant: None)
        told: list[list[int]] = []

        class Told(Looks):
            def _frame(self, guest: Any, mine: Any) -> bytes:
                told.append([session.id for session in mine])
                return super()._frame(guest, mine)

        looks = Told(broker, pool, gpus, tenancy)  # type: ignore[arg-type]
        hello = Hello(b"", 1, 0, "acme", "", "p", looks=True)
        looks.arrive([SimpleNamespace(hello=hello, peer="unix", connection=ours, welcome_proof=bytes(32))])  # type: ignore[list-item]
        with theirs:
            op, _ = await asyncio.to_thread(read_frame, theirs)
            theirs.shutdown(socket.SHUT_RDWR)
            await looks._farewells.finish()
        assert told == [[]]
        return op

    assert asyncio.run(main()) == Frame.DEVICES
