"""Into a file and out of it: on the same device, on another one, after a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apiserver.guest import Ended
from tests.apiserver.server import Server
from tests.migration.moving import PAGE, Keeper, Work, close, expect, suspend, suspended


@pytest.mark.parametrize("where", ["destination", "source"])
def test_suspended_and_resumed(source: Server, destination: Server, tmp_path: Path, where: str) -> None:
    resumed = {"source": source, "destination": destination}[where]
    guest = source.connect()
    work = Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        waiting = guest.ask_read(work.memory, PAGE)  # the program goes on until it needs an answer
        moved = keeper.play(guest.session, tmp_path / "file", resumed)
        assert moved.moved, moved
        assert guest.answer(waiting).payload == work.contents[0]
        expect(resumed, "taken_over")
        assert keeper.wait_for_exit() == 0
    work.check()
    close(guest, resumed)


def test_the_program_ends_while_it_is_suspended(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        guest.close()
        assert expect(keeper, "ended").ended.reason == "closed"
        assert keeper.wait_for_exit() == 0


def test_an_operator_ends_what_is_suspended(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.order(revoke={"session": guest.session, "reason": "enough"})
        assert guest.expect_end().text == "revoked: enough"
        assert expect(keeper, "ended").ended.reason == "revoked: enough"


def test_a_suspended_session_costs_next_to_nothing(source: Server, tmp_path: Path) -> None:
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.order(stats={})
        stats = expect(keeper, "stats").stats
        assert stats.session == guest.session
        assert stats.rss < 48 << 20


def test_twice_and_again(source: Server, destination: Server, tmp_path: Path) -> None:
    """What was resumed is suspended again; each file stands for itself."""
    guest = source.connect()
    work = Work(guest)
    here, there = source, destination
    for turn in range(3):
        path = tmp_path / f"file{turn}"
        with Keeper(tmp_path / "keeper.log") as keeper:
            suspended(here, keeper, suspend(here, keeper, guest.session, path))
            assert keeper.play(guest.session, path, there).moved
            expect(there, "taken_over")
        work.check()
        here, there = there, here
    close(guest, here)


def test_the_keeper_dies(source: Server, tmp_path: Path) -> None:
    """Then the program loses its connection; the file is left."""
    guest = source.connect()
    Work(guest)
    with Keeper(tmp_path / "keeper.log") as keeper:
        suspended(source, keeper, suspend(source, keeper, guest.session, tmp_path / "file"))
        keeper.process.kill()
        with pytest.raises(Ended):
            guest.sync()
    assert (tmp_path / "file").exists()
