"""Sessions that move: who has them, who holds which memory, what is told. API servers are fake."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.moves import custody
from gpuferry.monitor.moves.migration import ToServer
from gpuferry.monitor.pool.api_server import NOWHERE
from gpuferry.specs._generated import control_pb2, migration_pb2, node_pb2

from tests.fuzz.control import world
from tests.helpers import page
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest
from tests.monitor.moves import (
    MIB,
    STATE,
    TOKEN,
    granted,
    guest,
    migrate,
    replace,
    session,
    settled,
    start,
)


def begin(monitor: harness.Monitor, number: int, device: int = 1, **more: Any) -> list[Any]:
    """A migration in a thread of its own: the thread, and what is told of it."""
    told: list[Any] = []
    request = control_pb2.MigrateRequest(session=number, device=device, **more)
    steps = monitor.stub.Migrate(request, metadata=monitor.metadata, timeout=harness.DEADLINE)

    def follow() -> None:
        told.extend(steps)

    thread = threading.Thread(target=follow)
    thread.start()
    monitor.wait_for(lambda s: any(one.session == number and one.bytes for one in s.migrations), "under way")
    return [thread, told]


def result(begun: list[Any]) -> Any:
    thread, told = begun
    thread.join(harness.DEADLINE)
    return told[-1]


def test_a_session_moves(monitor: harness.Monitor) -> None:
    with guest(monitor) as one:
        before = session(monitor)
        done = migrate(monitor, before.id, "--to", "gpu:1")
        assert done.returncode == 0, done.stderr
        assert "gpu:0 → gpu:1" in done.stdout
        assert "20.0 ms" in done.stdout
        assert one.echo(b"the same connection") == b"the same connection"
        after = session(monitor)
        assert (after.id, after.device, after.state) == (before.id, 1, STATE.SESSION_STATE_RUNNING)
        assert after.server_pid != before.server_pid == one.server_pid
        assert after.age_seconds > before.age_seconds
        settled(monitor, [0, 100])
        # And back: the API server that it left serves again, as soon as it is ready.
        monitor.wait_for(lambda s: s.devices[0].pool_idle == 1, "it is idle")
        assert migrate(monitor, before.id, "--to", "gpu:0").returncode == 0
        assert one.echo(b"again") == b"again"
        assert session(monitor).server_pid == before.server_pid
        settled(monitor, [100, 0])


def test_json_lines(monitor: harness.Monitor) -> None:
    with guest(monitor):
        number = session(monitor).id
        done = migrate(monitor, number, "--to", "gpu:1", "--json", "--strategy", "stop")
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        assert {step["schema"] for step in steps} == {"gpuferry.migration/1"}
        assert (steps[0]["state"], steps[0]["report"]) == ("running", None)
        last = steps[-1]
        assert (last["state"], last["session"], last["source"]) == ("done", number, "gpu:0")
        assert last["report"]["strategy"] == "stop"
        assert last["downtime_seconds"] == pytest.approx(0.02)


def test_both_devices_hold_the_memory_meanwhile(monitor: harness.Monitor) -> None:
    with guest(monitor, "gated") as one:
        number = session(monitor).id
        moving = begin(monitor, number)
        assert granted(monitor) == [100, 100]
        assert session(monitor).state == STATE.SESSION_STATE_MIGRATING
        again = migrate(monitor, number, "--to", "gpu:1")
        assert again.returncode == 1
        assert "is moving already" in again.stderr
        Path(monitor.runtime, "go").touch()
        assert result(moving).state == STATE.MIGRATION_STATE_DONE
        settled(monitor, [0, 100])
        assert one.echo(b"on") == b"on"


def test_one_that_cannot_move_stays(monitor: harness.Monitor) -> None:
    with guest(monitor, "stuck") as one:
        number = session(monitor).id
        done = migrate(monitor, number, "--to", "gpu:1")
        assert done.returncode == 1
        assert "a kernel runs on" in done.stderr
        assert "it goes on where it was" in done.stderr
        assert one.echo(b"still") == b"still"
        assert session(monitor).device == 0
        settled(monitor, [100, 0])
        # The destination is as good as new.
        assert migrate(monitor, number, "--to", "gpu:1", "--dry-run").returncode == 0


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("gpu:0", 1, "is on GPU 0 already"),
        ("gpu:7", 1, "no GPU 7 in service"),
        ("gpu:", 2, "no target"),
        ("nowhere", 1, "no registry"),
    ],
)
def test_what_cannot_begin(monitor: harness.Monitor, target: str, status: int, text: str) -> None:
    with guest(monitor) as one:
        done = migrate(monitor, session(monitor).id, "--to", target)
        assert (done.returncode, text in done.stderr) == (status, True), done.stderr
        assert one.echo(b"on") == b"on"
    assert migrate(monitor, 424242, "--to", "gpu:1").returncode == 3


def test_no_room(monitor: harness.Monitor) -> None:
    with guest(monitor), FakeGuest(monitor.address, TOKEN, memory=1000 * MIB):
        (small,) = [one for one in monitor.status().sessions if one.memory_quota == 100 * MIB]
        for options in ((), ("--dry-run",)):
            done = migrate(monitor, small.id, "--to", f"gpu:{1 - small.device}", *options)
            assert done.returncode == 4, done.stderr
            assert "bytes to give" in done.stderr


def test_an_api_server_is_started_if_none_is_idle(monitor: harness.Monitor) -> None:
    with guest(monitor) as one, guest(monitor) as two:
        by_device = {one.device: one for one in monitor.status().sessions}
        assert migrate(monitor, by_device[0].id, "--to", "gpu:1").returncode == 0
        assert {one.device for one in monitor.status().sessions} == {1}
        assert one.echo(b"1") + two.echo(b"2") == b"12"
    # The additional one goes after a while.
    monitor.wait_for(lambda s: len(s.servers) == 2 and not s.sessions, "one fewer")


def test_timeout(monitor: harness.Monitor) -> None:
    with guest(monitor, "gated") as one:
        done = migrate(monitor, session(monitor).id, "--to", "gpu:1", "--timeout", "0.5")
        assert done.returncode == 1
        assert "not over within 0.5 s" in done.stderr
        assert one.echo(b"still") == b"still"
        settled(monitor, [100, 0])


def destination_of(monitor: harness.Monitor, device: int = 1) -> int:
    (pid,) = [
        s.pid for s in monitor.status().servers if s.device == device and s.state == STATE.SERVER_STATE_BUSY
    ]
    return int(pid)


def test_the_destination_dies(monitor: harness.Monitor) -> None:
    with guest(monitor, "gated") as one:
        moving = begin(monitor, session(monitor).id)
        os.kill(destination_of(monitor), signal.SIGKILL)
        assert result(moving).state == STATE.MIGRATION_STATE_FAILED
        assert one.echo(b"still") == b"still"
        settled(monitor, [100, 0])


def test_the_destination_gives_up(monitor: harness.Monitor) -> None:
    with guest(monitor, "gated") as one:
        number = session(monitor).id
        moving = begin(monitor, number)
        # Another process has the session number of one that nobody has: no harm done.
        monitor.stub.EndSession(control_pb2.EndSessionRequest(session=number), metadata=monitor.metadata)
        assert result(moving).state == STATE.MIGRATION_STATE_FAILED
        with pytest.raises((EOFError, ConnectionError)):
            one.echo(b"ended")


def test_the_source_dies(monitor: harness.Monitor) -> None:
    with guest(monitor, "gated") as one:
        moving = begin(monitor, session(monitor).id)
        os.kill(one.server_pid, signal.SIGKILL)
        assert result(moving).state == STATE.MIGRATION_STATE_FAILED
        monitor.wait_for(lambda s: not s.sessions, "end of the session")
        with pytest.raises((EOFError, ConnectionError)):
            one.echo(b"gone")


def test_the_guest_leaves(monitor: harness.Monitor) -> None:
    one = guest(monitor, "gated")
    moving = begin(monitor, session(monitor).id)
    one.close()
    failed = result(moving)
    assert failed.state == STATE.MIGRATION_STATE_FAILED
    assert "the session ended" in failed.reason


def test_a_destination_that_says_nothing_is_believed_by_its_source(monitor: harness.Monitor) -> None:
    with guest(monitor, "silent") as one:
        assert migrate(monitor, session(monitor).id, "--to", "gpu:1").returncode == 0
        assert one.echo(b"over there") == b"over there"
        assert session(monitor).device == 1


def test_a_session_that_nobody_has_is_over(monitor: harness.Monitor) -> None:
    with guest(monitor, "lost") as one:
        done = migrate(monitor, session(monitor).id, "--to", "gpu:1")
        assert done.returncode == 1
        with pytest.raises((EOFError, ConnectionError)):
            one.echo(b"gone")
    monitor.wait_for(lambda s: not s.sessions, "end of the session")


def test_who_says_that_it_moved_to_one_that_has_given_up_has_no_session_any_more(
    monitor: harness.Monitor,
) -> None:
    """Its destination had ended its part: nothing ended the session, and its memory counted for ever."""
    with guest(monitor, "pretends"):
        moving = begin(monitor, session(monitor).id)
        monitor.wait_for(lambda s: s.devices[1].pool_idle == 1, "the destination is ready again")
        Path(monitor.runtime, "go").touch()
        assert result(moving).state == STATE.MIGRATION_STATE_FAILED
        monitor.wait_for(lambda s: not s.sessions, "end of the session")


@pytest.mark.parametrize("lost", [False, True])
def test_a_session_is_over_once_its_source_and_its_destination_are_gone(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the move had failed, and the destination had still to clear up; and nobody says so twice."""
    monkeypatch.setattr(custody, "VERDICT_SECONDS", 0.0)

    async def main() -> None:
        wrong: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: wrong.append(problem))
        async with world(1) as found:
            number, source, destination = found.on_its_way()
            moved = migration_pb2.Moved(session=number, lost=lost, reason="a kernel runs on")
            source._events.moved(source, moved)
            for one in (destination, source) if lost else (source, destination):
                found.ends(one)
                await asyncio.sleep(0.01)
            found.is_whole(number)
        assert not wrong

    asyncio.run(main())


def test_a_move_for_which_no_descriptor_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never ended, and the session could not be moved again."""

    async def crowded(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main() -> None:
        async with world(1) as found:
            broker, number = found._monitor.broker, found.bystander.id
            monkeypatch.setattr(broker._orders, "_connect", crowded)
            begun = broker.migrate(number, ToServer("elsewhere:7700"), migration_pb2.STRATEGY_STOP, 0.0)
            assert begun
            async for _ in begun.follow():
                pass
            assert begun.reason == os.strerror(errno.EMFILE)
            found.stands_by()

    asyncio.run(asyncio.wait_for(main(), harness.DEADLINE))


def test_what_a_program_has_is_free_when_the_last_of_it_had_gone_elsewhere() -> None:
    """That one moved while the other was not back to this monitor, which took it for the only one."""

    async def main() -> None:
        async with world(1) as found:
            broker, events = found._monitor.broker, found._monitor.pool._events
            keeper, server = found._server(0), found._server(0)
            keeper.devices = (NOWHERE,)
            for number, holder in ((20, keeper), (21, server)):
                holder.serve(number)
                grant = node_pb2.Grant(
                    session=number, memory_quota=MIB, program_id=b"p", lease=20, seat=number - 20
                )
                returned = node_pb2.Returned(grant=grant, spec_hash=holder.spec_hash)
                if holder is keeper:
                    returned.migrating.remote.address = "elsewhere:7700"
                events.server_returned(holder, returned)
            assert [room.granted for room in broker.rooms() if room.ordinal == 0] == [MIB]
            for number, holder in ((21, server), (20, keeper)):
                ended = node_pb2.SessionEnded(session=number, reason="closed", clean=True)
                events.session_ended(holder, ended)
            assert list(broker.sessions) == [found.bystander.id]
            assert [room.granted for room in broker.rooms() if room.ordinal == 0] == [0]

    asyncio.run(main())


def test_metrics_and_timeline() -> None:
    with start("--pool", "1", "--http", "127.0.0.1:0") as monitor:
        monitor.wait_idle(2)
        with guest(monitor), guest(monitor, "stuck"):
            for one in monitor.status().sessions:
                migrate(monitor, one.id, "--to", f"gpu:{1 - one.device}")
            status = monitor.status()
            assert [one.state for one in status.migrations] in (
                [STATE.MIGRATION_STATE_DONE, STATE.MIGRATION_STATE_FAILED],
                [STATE.MIGRATION_STATE_FAILED, STATE.MIGRATION_STATE_DONE],
            )
            metrics = page.fetch(monitor.runtime, "/metrics")
            assert 'gpuferry_migrations_total{result="done"} 1.0' in metrics
            assert 'gpuferry_migrations_total{result="failed"} 1.0' in metrics
            assert "gpuferry_session_start_seconds_count 2.0" in metrics  # it did not start twice
            assert "gpuferry_migration_downtime_seconds_count 1.0" in metrics
            (copied,) = re.findall(r"^gpuferry_migration_bytes_total (\S+)", metrics, re.MULTILINE)
            assert float(copied) == 4 * MIB


def test_a_migration_goes_on_without_a_monitor(first: harness.Monitor) -> None:
    with guest(first, "gated") as one:
        number = session(first).id
        request = control_pb2.MigrateRequest(session=number, device=1)
        steps = first.stub.Migrate(request, metadata=first.metadata)
        first.wait_for(lambda s: s.migrations and s.migrations[-1].bytes, "under way")
        second = replace(first)
        steps.cancel()
        second.wait_for(lambda s: s.migrations and s.sessions, "both halves")
        settled(second, [100, 100])
        Path(second.runtime, "go").touch()
        done = second.wait_for(
            lambda s: s.migrations[0].state != STATE.MIGRATION_STATE_RUNNING, "end of the migration"
        )
        assert done.migrations[0].state == STATE.MIGRATION_STATE_DONE
        assert one.echo(b"on") == b"on"
        assert (session(second).id, session(second).device) == (number, 1)
        settled(second, [0, 100])
    settled(second, [0, 0])
    second.wait_idle(2)
