"""Moves of a program's processes as the monitor keeps account of them, and the next monitor after it."""

from __future__ import annotations

import asyncio
from itertools import permutations
from pathlib import Path
from unittest.mock import MagicMock, create_autospec, patch

import pytest
from gpuferry.monitor.broker.programs import Programs
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.moves import custody as custody_module
from gpuferry.monitor.moves.custody import Custody, Sessions
from gpuferry.monitor.moves.migration import CannotMove, Gang, Migration, State, ToDevice, ToDevices
from gpuferry.monitor.moves.orders import Orders
from gpuferry.monitor.moves.preparation import Preparations
from gpuferry.monitor.moves.reunion import Reunion
from gpuferry.monitor.policy.build import build
from gpuferry.monitor.policy.interface import Migrate
from gpuferry.monitor.pool.api_server import ApiServer
from gpuferry.monitor.sessions.decision import Placement
from gpuferry.monitor.sessions.lease import Lease
from gpuferry.monitor.sessions.placement import Placer
from gpuferry.monitor.sessions.session import Phase, Session
from gpuferry.specs._generated import migration_pb2, node_pb2, wire

AWAY = node_pb2.Returned(migrating=migration_pb2.Migrate(local=migration_pb2.LocalTarget(device=1)))
HERE = node_pb2.Returned()
COMING = node_pb2.Returned(grant=node_pb2.Grant(restore=True))  # to an API server that does not have it yet
HELLO = Hello(nonce=b"", pid=1, memory=0, tenant="", function="", program="")
GIB = 1 << 30
ENDED = create_autospec(Sessions, instance=True)
OTHERS = dict.fromkeys(("preparations", "snapshots", "connect", "dispatch", "begin"), MagicMock())


def two_devices() -> Placer:
    placer = Placer(build())
    for device in (0, 1):
        placer.add_device(device, 4 * GIB, GIB, frozenset())
    return placer


def new_custody(placer: Placer | None = None) -> tuple[Custody, Reunion]:
    placer = two_devices() if placer is None else placer
    preparations = create_autospec(Preparations, instance=True)
    custody = Custody(placer, preparations, lambda _: None, ENDED)
    ENDED.reset_mock()
    return custody, Reunion(placer, custody)


def server_of(session: Session, device: int = 0) -> MagicMock:
    server = MagicMock(
        spec=ApiServer,
        key=session.id,
        devices=(device,),
        device=device,
        several=False,
        is_keeper=False,
        stats=MagicMock(),
    )
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


def starting(key: int) -> MagicMock:
    """An API server that is being started."""
    events = {"ready_or_gone": asyncio.Event(), "over": asyncio.Event()}
    return MagicMock(spec=ApiServer, key=key, ready=True, end_reason="out of memory", **events)


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


FILE = "/somewhere/file"
IN_A_FILE = node_pb2.Returned(migrating=migration_pb2.Migrate(file=migration_pb2.FileTarget(path=FILE)))


@pytest.mark.parametrize("played", [False, True], ids=["plays", "played"])
@pytest.mark.parametrize("first", ["keeper", "destination"])
def test_a_session_that_comes_out_of_its_file_goes_on(first: str, played: bool) -> None:
    """Its keeper was killed, or the API server that it went to, when the one came back before the other."""

    async def life() -> None:
        placer = two_devices()
        custody, reunion = new_custody(placer)
        (session,) = program(1)
        session.grant = node_pb2.Grant(memory_quota=GIB)
        destination, keeper = server_of(session, 1), server_of(session, -1)
        keeper.is_keeper = True
        come = [(keeper, IN_A_FILE), (destination, HERE if played else COMING)]
        (one, says), (other, says_too) = come if first == "keeper" else come[::-1]
        session.server = one
        reunion.first(session, one, says)
        reunion.another(session, other, says_too)
        assert session.file == ("" if played else FILE)
        if not played:
            assert session.placement is None
            custody.taken_over(destination, session.id)
        custody.memory_released(keeper, session.id)
        assert session.server is destination
        assert not session.file
        assert not custody.active
        assert placer.whereabouts(session.lease.number) == ((1,), ())
        destination.kill.assert_not_called()
        if not played:
            keeper.kill.assert_not_called()
            (moved,) = custody.recent
            assert moved.state is State.DONE

    asyncio.run(life())


HAS_IT = node_pb2.Returned()  # the destination, once the source has let go of it
STAYS, MOVES, MOVED = (HERE, COMING), (AWAY, COMING), (AWAY, HAS_IT)


@pytest.mark.some(24)
@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
@pytest.mark.parametrize("words", [STAYS, MOVES, MOVED], ids=["stays", "moves", "moved"])
def test_the_policy_knows_where_a_program_is_whoever_comes_back_first(
    order: tuple[int, ...], words: tuple[node_pb2.Returned, node_pb2.Returned]
) -> None:
    """Its two processes came back to another monitor, each from where it was and from where it was to go."""

    async def life() -> None:
        placer = two_devices()
        custody, reunion = new_custody(placer)
        sessions = program(2)
        lease = sessions[0].lease
        lease.members.clear()
        sources = [server_of(session) for session in sessions]
        destinations = [server_of(session, 1) for session in sessions]
        for number in order:
            session = sessions[number % 2]
            session.grant = node_pb2.Grant(memory_quota=GIB)
            server, returned = (sources + destinations)[number], words[number // 2]
            if session.id in lease.members:
                reunion.another(session, server, returned)
                continue
            lease.members.append(session.id)
            session.server = server
            reunion.first(session, server, returned)
        if words is not STAYS:
            assert placer.whereabouts(lease.number) == ((0,), (1,))
        for session, source, destination in zip(sessions, sources, destinations, strict=True):
            if words is not STAYS:
                custody.taken_over(destination, session.id)
            custody.memory_released(destination if words is STAYS else source, session.id)
        assert not custody.active
        there = int(words is not STAYS)
        assert placer.whereabouts(lease.number) == ((there,), ())
        assert placer.devices[there].granted == GIB
        assert placer.devices[1 - there].granted == 0

    asyncio.run(life())


def test_an_api_server_that_ends_before_the_others_are_ready() -> None:
    """What the policy had entered for the program where it does not go was its own until it ended."""

    async def life() -> None:
        placer = Placer(build())
        for device in range(4):
            placer.add_device(device, 4 * GIB, GIB, frozenset())
        placer.adopt(1, (0, 1), GIB)
        custody, _ = new_custody(placer)
        sessions = program(2)
        one, other = starting(11), starting(12)
        pool = MagicMock(servers={}, start_own=MagicMock(side_effect=[one, other]))
        pool.percentage.return_value = 0
        orders = Orders(placer, {}, custody, pool=pool, variables_stay=False, **OTHERS)
        gang = Gang(sessions[0].lease)
        moves = [custody.begin_migration(each, each.server, ToDevices((2, 3)), gang) for each in sessions]
        work = asyncio.ensure_future(orders._attempt(moves[0], orders._to_devices(moves[0], (2, 3))))
        one.ready_or_gone.set()
        await asyncio.sleep(0)
        one.over.set()
        other.ready_or_gone.set()
        await work
        assert [each.state for each in moves] == [State.FAILED] * 2
        assert moves[0].reason == "no API server starts on GPUs 2, 3: out of memory"
        assert placer.whereabouts(1) == ((0, 1), ())

    asyncio.run(life())


def test_a_process_that_comes_before_the_others_are_back(tmp_path: Path) -> None:
    """To the next monitor, where it founds a lease. The others came into that one, two had the same seat, and
    what they had was never given back.
    """
    sessions: dict[int, Session] = {}
    pool, moves, tenancy = MagicMock(), MagicMock(), MagicMock()
    programs = Programs(sessions, two_devices(), pool, moves, tenancy, tmp_path, 4)
    new = sessions[7] = Session(7, HELLO._replace(program_id=b"program"), "", None)
    assert not programs.enter(new)
    for number, seat in ((5, 1), (4, 0)):
        back = sessions[number] = Session(number, HELLO, "", None)
        programs.returned(back, node_pb2.Grant(session=number, program_id=b"program", lease=4, seat=seat))
    assert (new.lease.number, new.lease.members) == (7, [7])
    assert sessions[4].lease is sessions[5].lease
    assert (sessions[4].lease.number, sessions[4].lease.seats) == (4, {4: 0, 5: 1})


def test_a_process_that_waits_to_join_has_nothing_to_move() -> None:
    """Its program has. What its operator was told was an AssertionError."""
    (running,) = program(1)
    assert running.server
    running.phase, running.grant, running.server.spec_hash = Phase.RUNNING, node_pb2.Grant(), wire.SPEC_HASH
    waiting = Session(2, HELLO, "", None)
    waiting.lease = running.lease
    waiting.lease.joining.append(waiting.id)
    placer, sessions = two_devices(), {1: running, 2: waiting}
    custody, _ = new_custody(placer)
    orders = Orders(placer, sessions, custody, pool=MagicMock(), variables_stay=False, **OTHERS)
    orders.check_can_move(running, ToDevice(1))
    with pytest.raises(CannotMove, match="session 2 waits for a GPU: there is nothing to move yet"):
        orders.check_can_move(waiting, ToDevice(1))


def test_a_session_comes_out_of_its_file_where_its_labels_are() -> None:
    """Its labels hold for the GPU too on which a resumed session begins again; it began on any."""
    (session,) = program(1)
    session.hello, session.grant = HELLO._replace(labels=(("gpu", "1"),)), node_pb2.Grant(memory_quota=GIB)
    session.file, placer = "a file", Placer(build())
    for device in (0, 1):
        placer.add_device(device, 4 * GIB, GIB, frozenset({f"gpu={device}"}))
        placer.on_idle(device, 10 + device)
    custody, _ = new_custody(placer)
    here = OTHERS | {"preparations": MagicMock(wait_for_server=MagicMock(return_value=False))}
    orders = Orders(placer, {1: session}, custody, pool=MagicMock(), variables_stay=False, **here)
    there = custody.begin_migration(session, session.server, ToDevice(0))
    orders._return(there)
    assert there.reason == "GPU 0 lacks a label that it asked for"
    orders._return(custody.begin_migration(session, session.server, ToDevice(None)))
    assert placer.next() == Placement(session.id, 1, 11, GIB)


def test_a_program_does_not_move_before_all_are_back() -> None:
    """After a restart of the monitor a process of it may come later, which would be left behind."""
    first, second = program(2)
    for each in (first, second):
        assert each.server
        each.phase, each.grant, each.server.spec_hash = Phase.RUNNING, node_pb2.Grant(), wire.SPEC_HASH
    first.lease.program = b"program"
    placer, pool = two_devices(), MagicMock(all_back=False)
    placer.adopt(1, (0,), GIB)
    custody, _ = new_custody(placer)
    orders = Orders(placer, {1: first, 2: second}, custody, pool=pool, variables_stay=False, **OTHERS)
    with pytest.raises(CannotMove, match="not all API servers have come back"):
        orders.check_can_move(first, ToDevice(1))
    orders.carry_out(Migrate(1, 0, 1, 21))
    assert not custody.active
    pool.all_back = True
    orders.check_can_move(first, ToDevice(1))


def test_a_defect_ends_a_move() -> None:
    """It was told to be under way for ever, and its session could not move any more."""

    async def fails() -> None:
        raise KeyError("a defect")

    async def life() -> None:
        (session,) = program(1)
        custody, _ = new_custody()
        orders = Orders(two_devices(), {}, custody, pool=MagicMock(), variables_stay=False, **OTHERS)
        move = custody.begin_migration(session, session.server, ToDevice(1))
        await orders._attempt(move, fails())
        assert (move.state, move.reason) == (State.FAILED, "a defect of gpuferry's: see the monitor's log")
        assert not custody.active

    asyncio.run(life())


def test_nobody_joins_a_program_that_has_gone_to_another_server(tmp_path: Path) -> None:
    """Its guests may yet have to follow. Who joined it waited for a minute, and was refused."""
    sessions: dict[int, Session] = {}
    programs = Programs(sessions, two_devices(), MagicMock(), MagicMock(), MagicMock(), tmp_path, 4)
    for number in (1, 2, 3):
        sessions[number] = Session(number, HELLO._replace(program_id=b"program"), "", None)
    first, second, third = sessions.values()
    assert not programs.enter(first)
    assert programs.enter(second)
    assert programs.left_behind() == []
    first.remote = migration_pb2.RemoteTarget(address="gpu-b:7700")
    assert programs.left_behind() == [second]
    assert (first.lease.joining, programs.joining) == ([], [])
    assert not programs.enter(second)
    assert programs.enter(third)
    assert second.lease is third.lease
    assert second.lease.number == 2
