"""The thread that moves a session, where it does not come far."""

from __future__ import annotations

import os
import select
import socket
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpuferry.apiserver.log import Log
from gpuferry.apiserver.moving import Mover
from gpuferry.apiserver.residing import HOST, Residing
from gpuferry.specs._generated import migration_pb2, node_pb2


def test_a_move_that_is_refused_at_once_keeps_nothing_open() -> None:
    """Neither the file, which is the monitor's to empty, nor the gate of the program's processes."""
    near, far = socket.socketpair()
    members = [migration_pb2.Member(session=number, seat=number) for number in (1, 2)]
    order = migration_pb2.Migrate(session=1, members=members, file=migration_pb2.FileTarget(path="/f"))
    beside = [os.dup(far.fileno()) for _ in range(4)]
    core = cast(Any, None)
    away = SimpleNamespace(lend=lambda _: None, stay=lambda *_: "no room")
    mover = Mover(core, node_pb2.Grant(), 0.0, near, order, [*beside], b"", Log(), cast(Any, away))
    mover.start()
    mover.join()
    assert [message.moved.reason for message in mover.messages()] == ["no room"]
    for descriptor in beside:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    mover.close()
    near.close()
    far.close()


@pytest.mark.parametrize("error", [TimeoutError("it is late"), MemoryError("too fast"), RuntimeError("over")])
def test_what_cannot_be_had_is_told_in_words_alone(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is no defect, which would have a traceback."""

    def refuse(_: object) -> None:
        raise error

    near, far = socket.socketpair()
    order, core = migration_pb2.Migrate(session=1), cast(Any, None)
    away = cast(Any, SimpleNamespace(lend=refuse))
    mover = Mover(core, node_pb2.Grant(), 0.0, near, order, [], b"", Log(), away)
    with near, far:
        mover.start()
        mover.join()
    assert [message.moved.reason for message in mover.messages()] == [str(error)]
    assert "Traceback" not in capfd.readouterr().err
    mover.close()


def test_another_monitor_is_told_that_memory_is_wanted_back_for_a_move() -> None:
    """And where it is meanwhile: in host memory, for nobody brings it back yet."""
    core = SimpleNamespace(
        absent=True, resident=0, stats=lambda: {"memory_mapped": 5 << 20}, wish_again=lambda: None
    )
    residing = Residing(cast(Any, core), 1, Log())
    residing.where = HOST
    stopped = threading.Event()
    mover = threading.Thread(target=residing.stay, args=(stopped.is_set, 60.0))
    mover.start()
    try:
        for _ in range(2):
            assert select.select([residing], [], [], 30)[0]
            (wanted,) = residing.messages()
            assert (wanted.room_wanted.bytes, wanted.room_wanted.away) == (5 << 20, True)
            assert residing.describe().where == HOST
            residing.wish_again()
    finally:
        stopped.set()
        mover.join()
        residing.close()


@pytest.mark.parametrize("within_call", [False, True])
def test_copies_are_lent_however_long_a_busy_machine_takes(within_call: bool) -> None:
    """Its dispatcher comes late to the end of a call, but within one that waits for memory it never will."""
    attempts = iter([False, False, False, True])
    core = SimpleNamespace(
        absent=True,
        waits_in_call=within_call,
        hold=lambda _: next(attempts),
        proceed=lambda: None,
    )
    residing = Residing(cast(Any, core), 1, Log())
    lent = residing.lend(lambda: False)
    assert (lent is None) is within_call
    assert len(list(attempts)) == (3 if within_call else 0)
    residing.close()
