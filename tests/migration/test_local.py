"""Between two devices of one machine: everything is there afterwards, at the same addresses."""

from __future__ import annotations

import pytest
from gpuferry.specs._generated import migration_pb2

from tests.apiserver.server import Server
from tests.migration.moving import PRECOPY, STOP, Work, close, move, settled


@pytest.mark.parametrize("strategy", [STOP, PRECOPY], ids=["stop", "precopy"])
def test_everything_is_there(source: Server, destination: Server, strategy: migration_pb2.Strategy) -> None:
    guest = source.connect()
    work = Work(guest)
    moved = move(source, destination, guest.session, strategy)
    settled(source, destination, moved)
    work.check()
    assert moved.report.strategy == strategy
    assert moved.report.mapped_bytes == work.pages << 21
    assert moved.report.copied_bytes >= moved.report.mapped_bytes
    assert moved.report.pause_bytes == (moved.report.mapped_bytes if strategy == STOP else 0)
    assert 0 < moved.report.pause_seconds <= moved.report.seconds
    close(guest, destination)
