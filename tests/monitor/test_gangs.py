"""Moves of a program's processes as the monitor keeps account of them, and the next monitor after it."""

from __future__ import annotations

import asyncio
from unittest.mock import MagicMock, create_autospec, patch

from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.moves import custody as custody_module
from gpuferry.monitor.moves.custody import Custody, Sessions
from gpuferry.monitor.moves.migration import Gang, Migration, ToDevice
from gpuferry.monitor.moves.preparation import Preparations
from gpuferry.monitor.moves.reunion import Reunion
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.sessions.lease import Lease
from gpuferry.monitor.sessions.placement import Placer
from gpuferry.monitor.sessions.session import Session
from gpuferry.specs._generated import migration_pb2, node_pb2

AWAY = node_pb2.Returned(migrating=migration_pb2.Migrate(local=migration_pb2.LocalTarget(device=1)))
HERE = node_pb2.Returned()
COMING = node_pb2.Returned(grant=node_pb2.Grant(restore=True))  # to an API server that does not have it yet
HELLO = Hello(nonce=b"", pid=1, memory=0, tenant="", function="", program="")
ENDED = create_autospec(Sessions, instance=True)


def new_custody() -> tuple[Custody, Reunion]:
    placer = create_autospec(Placer, instance=True)
    preparations = create_autospec(Preparations, instance=True)
    custody = Custody(placer, preparations, lambda _: None, ENDED)
    ENDED.reset_mock()
    return custody, Reunion(placer, custody)


def server_of(session: Session) -> MagicMock:
    server = MagicMock(spec=ApiServer, key=session.id, devices=(0,), device=0, several=False, is_keeper=False)
    session.server = server
    return server


def program(count: int) -> list[Session]:
    """The sessions of a program with so many processes, each with its API server."""
    lease = Lease(1)
    lease.members.clear()
    sessions = [Session(number, HELLO, "", None) for number in range(1, count + 1)]
    for seat, session in enumerate(sessions):
        session.lease = lease
        lease.members.append(session.id)
        lease.seats[session.id] = seat
        server_of(session)
    return sessions


def told_to_cancel(session: Session) -> list[str]:
    """The reasons that its API server was given."""
    assert isinstance(session.server, MagicMock)
    return [one.args[0].cancel.reason for one in session.server.send.call_args_list]


def test_the_reason_is_that_of_the_process_which_cannot_move() -> None:
    """Whichever is heard first: one that others hold back, and one that was told to give up for it."""
    custody, _ = new_custody()
    sessions = program(3)
    gang = Gang(sessions[0].lease)
    moves: list[Migration] = []
    for session in sessions:
        moves.append(custody.begin_migration(session, session.server, ToDevice(1), gang))
        moves[-1].orders_given = True

    def heard(number: int, reason: str, others_stay: bool = False, cancelled: bool = False) -> None:
        session = sessions[number]
        assert session.server
        moved = migration_pb2.Moved(
            session=session.id, reason=reason, others_stay=others_stay, cancelled=cancelled
        )
        custody.moved(session.server, moved)

    heard(2, "another one stays", others_stay=True)
    (asked,) = told_to_cancel(sessions[0])
    heard(0, asked, cancelled=True)
    heard(1, "it has a file open")
    assert moves[1].reason == "it has a file open"
    assert moves[0].reason == moves[2].reason == "session 2 of the same program: it has a file open"


def test_who_goes_ahead_of_a_process_that_was_not_told_is_called_back() -> None:
    """The monitor was killed while it gave its orders; the next one hears of them in any order."""
    for away in range(3):
        _, reunion = new_custody()
        sessions = program(3)
        lease = sessions[0].lease
        lease.members.clear()
        for number, session in enumerate(sessions):
            lease.members.append(session.id)
            assert session.server
            reunion.first(session, session.server, AWAY if number == away else HERE)
        assert told_to_cancel(sessions[away])
        assert not any(told_to_cancel(session) for session in sessions if session is not sessions[away])


def test_it_is_called_back_when_its_source_comes_after_its_destination() -> None:
    async def life() -> None:
        _, reunion = new_custody()
        one, other = program(2)
        source, destination = one.server, server_of(one)
        one.server = destination
        assert source
        assert other.server
        reunion.first(one, destination, COMING)
        reunion.first(other, other.server, HERE)
        reunion.another(one, source, AWAY)
        assert told_to_cancel(one)

    asyncio.run(life())


def test_who_goes_with_all_others_goes_on() -> None:
    custody, reunion = new_custody()
    sessions = program(3)
    lease = sessions[0].lease
    lease.members.clear()
    for session in sessions:
        lease.members.append(session.id)
        assert session.server
        reunion.first(session, session.server, AWAY)
    assert len(custody.active) == 3
    assert not any(told_to_cancel(session) for session in sessions)


def test_a_destination_that_gives_up_before_the_source_is_back_ends_no_session() -> None:
    """It came back to this monitor first, so nobody knew who else had the session."""

    async def life() -> None:
        custody, reunion = new_custody()
        (session,) = program(1)
        destination, source = session.server, server_of(session)
        session.server = destination
        assert destination
        reunion.first(session, destination, COMING)
        assert custody.destination_of(session.id) is destination
        custody.memory_released(destination, session.id)
        assert custody.may_go_on(session, destination)
        ENDED.end.assert_not_called()
        reunion.another(session, source, HERE)
        assert session.server is source
        assert not custody.active
        ENDED.end.assert_not_called()

    asyncio.run(life())


def test_a_session_whose_source_does_not_come_back_ends_with_the_destination() -> None:
    async def life() -> None:
        custody, reunion = new_custody()
        (session,) = program(1)
        destination = session.server
        assert destination
        reunion.first(session, destination, COMING)
        custody.memory_released(destination, session.id)
        await asyncio.sleep(0.05)
        ENDED.end.assert_called_once()
        assert not custody.may_go_on(session, destination)

    with patch.object(custody_module, "VERDICT_SECONDS", 0.01):
        asyncio.run(life())
