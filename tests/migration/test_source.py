"""The order of the source's steps, and what is undone when one of them fails; with a session that is none."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from gpuferry.migration import frames
from gpuferry.migration.copy import Shared
from gpuferry.migration.errors import Cancelled, LinkBroken, Lost, MigrationError, Refused
from gpuferry.migration.frames import PAGE, PRIMARY, RANGE, Kept
from gpuferry.migration.source import Order, Source
from gpuferry.specs._generated import migration_pb2

BASE = 1 << 40
MAP = (frames.pack("sessionMemMap", RANGE.pack(BASE, PAGE)), 0)
MORE = (frames.pack("sessionMemMap", RANGE.pack(BASE + 4 * PAGE, PAGE)), 0)
LOAD = (frames.pack("sessionLoadImage", frames.LOAD_IMAGE.pack(b"i" * 32, 7 << 40, 9)), 1)
UNDONE = {"snapshot": "forget_tail", "alias": "drop_aliases", "hold": "proceed"}


class Session:
    """Core, target, wire and memory in one: notes what is asked of it, and fails where it shall."""

    device = b""
    window = (BASE, 1 << 36)
    driver_version = 13000
    relayed = False
    comparable = True
    ask: Any = None
    lacks = ()

    def __init__(self, fails: str = "", error: BaseException | None = None) -> None:
        self.log: list[str] = []
        self.told: list[str] = []
        self.fails, self.error = fails, error or OSError("wanted")
        self.journal = [MAP]
        self.since: list[tuple[bytes, int]] = []  # the snapshot; under hold
        self.mapped: list[tuple[int, int]] = [(BASE, PAGE)]
        self.broken_from = ""
        self.arriving = False
        self.reason = ""
        self.wire = self.memory = self

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what == self.fails:
            raise self.error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: self._note(name)

    @property
    def broken(self) -> bool:
        return bool(self.broken_from) and self.broken_from in [*self.log, "always"]

    # -- the core

    def snapshot(self) -> list[tuple[bytes, int]]:
        self._note("snapshot")
        return self.journal

    def tail(self) -> list[tuple[bytes, int]]:
        self._note("tail")
        since, self.since = self.since, []
        return since

    def images(self, also: Collection[bytes] = ()) -> list[tuple[bytes, bytes]]:
        self._note("images")
        return []

    def mappings(self) -> list[tuple[int, int]]:
        return self.mapped

    def alias(self) -> list[tuple[int, int]]:
        self._note("alias")
        return self.mapped

    def hot(self) -> list[int]:
        return []

    def hashes(self, pages: Sequence[int]) -> bytes:
        return bytes(16) * len(pages)

    def hold(self, seconds: float) -> bool:
        self._note("hold")
        return self.reason != "hold"

    def drain(self, seconds: float) -> str:
        self._note("drain")
        return self.reason

    def arrays(self) -> list[tuple[int, int, int, int, int]]:
        return []

    def stats(self) -> dict[str, int]:
        return {"memory_quota": 0}

    def carried(self) -> list[tuple[int, int]]:
        return []

    def exports(self) -> list[tuple[bytes, int, int, int]]:
        return []

    imports = opened_events = opened_aliases = exports
    claimed = (0,)
    devices = (b"one",)

    def events(self) -> list[tuple[int, int, int]]:
        return [(5, 0, 9)]

    def state(self) -> bytes:
        return b"state"

    def resume_state(self) -> bytes:
        return b"counts"

    def unread(self) -> bytes:
        return b"unread"

    def unsent(self) -> bytes:
        return b"unsent"

    def unsent_head(self) -> int:
        return 2

    # -- the target

    def tell(self, op: str, body: bytes = b"", payload: bytes = b"", context: int = 0) -> None:
        self.told.append(op)

    def replay(self, kept: Kept, what: str) -> None:
        self.told.append(what)

    def copy(self, pages: Sequence[int], advance: object, context_of: object) -> int:
        if pages:
            self._note("copy")
        return len(pages) * PAGE

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        yield

    def phase(self, phase: int, done: int = 0, total: int = 0) -> None:
        """Nobody stops it."""


def move(session: Any, strategy: migration_pb2.Strategy = migration_pb2.STRATEGY_STOP) -> None:
    Source(session, 3, session, Order(strategy), session).run()


def test_the_steps() -> None:
    session = Session()
    move(session)
    steps = [step for step in session.log if step != "settle"]
    assert steps == [
        *("prepare", "snapshot", "alias", "add", "hold", "drain"),
        *("tail", "carry_orphans", "snapshot", "alias", "add", "copy", "done", "take_over"),
        *("drop_aliases", "leave"),
    ]
    assert session.told == [
        "sessionMemMap",
        "sessionRestoreEvent",
        "sessionRestoreCounters",
        "sessionRestoreResumable",
        "sessionRestoreInput",
        "sessionRestoreOutput",
    ]


STEPS = ["prepare", "snapshot", "alias", "add", "hold", "drain", "tail", "copy", "done", "take_over"]
STAYS = [Refused("no"), LinkBroken("gone"), Cancelled("stopped")]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", STAYS, ids=lambda error: type(error).__name__)
def test_whatever_fails_is_undone(step: str, error: MigrationError) -> None:
    session = Session(step, error)
    with pytest.raises(type(error)):
        move(session)
    begun = session.log[: session.log.index(step) + 1]
    expected = [undo for step, undo in UNDONE.items() if step in begun]
    if "snapshot" in begun and step != "snapshot" and "drop_aliases" not in expected:
        expected.append("drop_aliases")
    assert [each for each in session.log[len(begun) :] if each != "undo"] == expected[::-1]
    assert session.log[-1] == "undo"


def test_who_may_have_handed_it_over_has_it_no_more() -> None:
    session = Session("take_over", Lost("nobody answers"))
    with pytest.raises(Lost):
        move(session)
    assert session.log[-2:] == ["take_over", "leave"]


@pytest.mark.parametrize("when", ["always", "drain"])
def test_a_device_that_has_failed_is_left_alone(when: str) -> None:
    session = Session()
    session.broken_from = when
    with pytest.raises(Refused, match="device has failed"):
        move(session)
    assert ("snapshot" in session.log) == (when != "always")
    assert "copy" not in session.log


@pytest.mark.parametrize(("reason", "said"), [("hold", "half a call"), ("busy", "busy")])
def test_it_does_not_stand_still(reason: str, said: str) -> None:
    session = Session()
    session.reason = reason
    with pytest.raises(Refused, match=said):
        move(session)
    assert session.log[-4:] == ["proceed", "drop_aliases", "forget_tail", "undo"]


def test_not_while_its_guest_is_on_its_way() -> None:
    session = Session()
    session.arriving = True
    with pytest.raises(Refused, match="coming after it"):
        move(session)
    assert "copy" not in session.log


def test_what_is_mapped_is_what_its_frames_say() -> None:
    session = Session()
    session.mapped = [(BASE, PAGE), (BASE + 4 * PAGE, PAGE)]
    with pytest.raises(Refused, match="frames map"):
        move(session)
    session = Session()
    session.mapped, session.since = [(BASE, PAGE), (BASE + 4 * PAGE, PAGE)], [MORE]
    move(session)


def test_code_that_is_gone_before_it_was_sent() -> None:
    session = Session()
    session.journal = [MAP, LOAD]
    with pytest.raises(Refused, match="just unloading code"):
        move(session)
    assert session.told == []


def test_code_that_is_not_held_any_more() -> None:
    """There was no room for it: the engine says so."""
    session = Session("images", LookupError("an image is no longer held"))
    session.journal = [MAP, LOAD]
    with pytest.raises(Refused, match="an image is no longer held"):
        move(session)


def test_what_precopy_copied_is_not_copied_again() -> None:
    """Both sides hash the same, so nothing is left to do in the pause; and both have hashed before it."""
    session = Session()
    move(session, migration_pb2.STRATEGY_PRECOPY)
    assert session.log.index("copy") < session.log.index("hold")
    assert "copy" not in session.log[session.log.index("hold") :]


def test_no_copy_goes_across_the_beginning_of_a_mapping() -> None:
    """What lies side by side is other physical memory, which a device need not copy in one go."""
    session = Copied()
    shared = Shared(session, session)  # type: ignore[arg-type]
    shared.add([(BASE, 2 * PAGE), (BASE + 2 * PAGE, PAGE)])
    shared.copy([BASE, BASE + PAGE, BASE + 2 * PAGE], lambda _: None, lambda _: PRIMARY)
    assert session.copies == [(BASE, 2 * PAGE), (BASE + 2 * PAGE, PAGE)]


class Copied(Session):
    """Notes what is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[tuple[int, ...]] = []

    def share(self, address: int) -> int:
        return os.memfd_create("memory")

    def ask(self, op: str, *_: object, **__: object) -> None:
        assert op == "sessionRestoreShare"

    def tell(self, op: str, body: bytes = b"", payload: bytes = b"", context: int = 0) -> None:
        assert op == "sessionRestoreCopy"
        self.copies.append(RANGE.unpack(body))
