"""Guests that come back to a monitor that does not know their sessions."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from gpuferry.monitor.broker.returning import Returning
from gpuferry.monitor.door.handshake import Reason, Resume


@pytest.mark.parametrize(("complete", "reason"), [(False, Reason.SHUTTING_DOWN), (True, Reason.NO_SESSION)])
def test_a_session_is_over_once_no_api_server_can_bring_it(complete: bool, reason: Reason) -> None:
    """One that is slow to come back may have it: its guest tries again."""
    refusals = MagicMock()
    returning = Returning({}, refusals, lambda: complete, MagicMock(), MagicMock())
    connection = MagicMock()
    returning.come(connection, "127.0.0.1:1", Resume(bytes(72), b"", 7, 0))
    ((_, _, refusal), _) = refusals.turn_away.call_args
    assert refusal.reason is reason
