"""Which sessions are said not to end: none of a server that had no processor for a while, or that moved."""

from __future__ import annotations

import json
import select
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gpuferry.apiserver import server, session
from gpuferry.apiserver.end import LOST, MOVED, End
from gpuferry.apiserver.log import Log

from tests.apiserver.test_monitor_lost import Engine, message, order, serving


class Late:
    """A poller, and the clock: once the guest has hung up all stand still, and then the engine goes on."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._poller, self._lost = engine, select.poll(), 0.0
        self.register, self.unregister = self._poller.register, self._poller.unregister

    def monotonic(self) -> float:
        return time.monotonic() + self._lost

    def poll(self, patience: float | None) -> list[tuple[int, int]]:
        if patience is not None and not self._lost:
            self._lost = 5.0
            return []
        if self._lost:
            lost: Any = LOST
            self._engine.end(lost)
        return self._poller.poll(patience)


def test_a_deadline_begins_anew_where_all_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel was launched, so that nobody waits for copies; the session ends as soon as it can."""
    engine = Engine()
    monkeypatch.setattr(engine, "may_never_end", True, raising=False)
    late = Late(engine)
    for module in (server, session):
        monkeypatch.setattr(module, "time", late)
    monkeypatch.setattr(server, "select", SimpleNamespace(**vars(select) | {"poll": lambda: late}))
    guest, its = socket.socketpair()
    with serving(engine, monkeypatch) as there:
        with its:
            grant: dict[str, Any] = {"session": 7, "memory_quota": 1 << 30, "welcomed": True}
            order(there.control, its, grant=grant)
        assert message(there.control).started.session == 7
        guest.close()
        assert message(there.control).ended.clean
        assert message(there.control).HasField("ready")


@pytest.mark.parametrize(("end", "level"), [(LOST, "error"), (MOVED, "info")])
def test_one_that_has_moved_is_no_error_when_clearing_up_takes_long(
    end: End, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on elsewhere: operators looked for what was wrong with it."""
    left = SimpleNamespace(
        id=7, ended=end, deadline=0.0, mover=None, away_until=None, may_take_longer=lambda: False
    )
    told: list[End] = []
    there: Any = SimpleNamespace(_log=Log(), _session=left, _report=lambda _, end, clean: told.append(end))
    assert server.Server._overdue(there)
    assert told == [end]
    assert json.loads(capsys.readouterr().err)["level"] == level
