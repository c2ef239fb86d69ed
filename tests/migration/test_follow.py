"""A session moves on before its guest has come after it; it does not while the guest is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.server import Server
from tests.migration.moving import MEMORY, Keeper, Work, close, devices, expect, move, suspend, suspended
from tests.migration.test_remote import Follower, connect, follow, send_away

Away = tuple[Follower, Work]


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with Keeper(tmp_path / "keeper.log") as running:
        yield running


@pytest.fixture
def third(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "third.log", 0, **devices(MEMORY)) as server:
        server.ready()
        yield server


@pytest.fixture
def away(source: Server, destination: Server, keeper: Keeper) -> Away:
    """A guest whose session went to another machine, and which has not heard of it."""
    guest = connect(source)
    work = Work(guest)
    send_away(source, destination, keeper, guest.session)
    assert expect(source, "moved").moved.moved
    expect(destination, "taken_over")
    assert expect(source, "ended").ended.clean
    expect(source, "ready")
    expect(keeper, "taken_over")
    return guest, work


def has_left(server: Server) -> None:
    ended = expect(server, "ended").ended
    assert (ended.reason, ended.clean) == ("moved", True)
    expect(server, "ready")


def ends(guest: Follower, work: Work, server: Server, keeper: Keeper) -> None:
    """The guest comes after it, to where it is by now."""
    work.check()
    follow(guest, server)
    assert expect(keeper, "ended").ended.reason == "moved"
    work.check()
    close(guest, server)


def test_to_another_device(away: Away, destination: Server, third: Server, keeper: Keeper) -> None:
    guest, work = away
    assert move(destination, third, guest.session).moved
    expect(third, "taken_over")
    has_left(destination)
    ends(guest, work, third, keeper)


@pytest.mark.system
def test_into_a_file(away: Away, destination: Server, third: Server, keeper: Keeper, tmp_path: Path) -> None:
    guest, work = away
    with Keeper(tmp_path / "another.log") as another:
        suspended(destination, another, suspend(destination, another, guest.session, tmp_path / "file"))
        assert another.play(guest.session, tmp_path / "file", third).moved
        expect(third, "taken_over")
    ends(guest, work, third, keeper)


def test_not_while_its_guest_is_on_its_way(away: Away, destination: Server, third: Server) -> None:
    """It has taken leave where it was, and is about to come here: nobody could tell it to go elsewhere."""
    guest, work = away
    guest.sync()
    follow(guest, destination, meanwhile=lambda: cannot_go(guest, destination, third))
    moved = move(destination, third, guest.session)
    assert moved.moved, moved
    expect(third, "taken_over")
    has_left(destination)
    work.check()
    close(guest, third)


def cannot_go(guest: Follower, destination: Server, third: Server) -> None:
    moved = move(destination, third, guest.session)
    assert not moved.moved
    assert "coming after it" in moved.reason
    assert expect(third, "ended").ended.clean
    expect(third, "ready")
