"""What tenants are billed: by a clock of the test's own, over moves and restarts, and on a full disk."""

from __future__ import annotations

import datetime
import errno
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import structlog.testing
from gpuferry.monitor.cli import tenant
from gpuferry.monitor.door.handshake import Hello, Restore
from gpuferry.monitor.door.tokens.proof import is_tenant
from gpuferry.monitor.policy.interface import Standing
from gpuferry.monitor.pool.returns import SILENT_SECONDS
from gpuferry.monitor.service.dial import dial
from gpuferry.monitor.sessions import session as sessions
from gpuferry.monitor.sessions.decision import Placement
from gpuferry.monitor.sessions.events import Event, Kind
from gpuferry.monitor.sessions.session import Phase, Session
from gpuferry.monitor.settings.limits import Limits
from gpuferry.monitor.tenants import usage
from gpuferry.monitor.tenants.tenancy import Source, Tenancy
from gpuferry.monitor.tenants.usage import NOBODY, UsageBook
from gpuferry.monitor.views.stats import billing
from gpuferry.monitor.views.stats.billing import Billing
from gpuferry.monitor.views.stats.metrics import expose_usage
from gpuferry.specs._generated import control_pb2_grpc, migration_pb2, node_pb2, tenants_pb2

GIB = 1 << 30


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (sessions, billing):
        monkeypatch.setattr(module, "time", made)
    return made


class Stage:
    """A monitor's sessions, and what is billed for them."""

    def __init__(self, path: Path, inherited: bool = False, day: str = "2026-11-22") -> None:
        self.day = day
        self.broker: Any = SimpleNamespace(sessions={})
        self.book = UsageBook(path / "usage.json", is_tenant, lambda: self.day)
        broker: Any = self.broker
        self.tenancy = Tenancy({})
        self.billing = Billing(broker, self.book, self.tenancy, inherited)

    def begin(
        self, number: int, tenant: str = "acme", restore: Restore | None = None, devices: int = 1
    ) -> Session:
        hello = Hello(b"", 1, GIB, tenant, "", "p", devices=devices, restore=restore)
        one = Session(number, hello, "unix", None)
        one.grant = node_pb2.Grant(session=number, memory_quota=GIB)
        one.placement = Placement(number, 0, 1, GIB)
        one.server = SimpleNamespace(session=number, stats=node_pb2.Stats(session=number))  # type: ignore[assignment]
        one.enter_phase(Phase.RUNNING)
        if restore:
            one.phase_began -= restore.age
            one.restoring = True
        self.broker.sessions[number] = one
        return one

    def start(self, number: int, tenant: str = "acme", restore: Restore | None = None) -> Session:
        one = self.begin(number, tenant, restore)
        self.billing.happened(Event(Kind.STARTED, number))
        return one

    def end(self, number: int) -> None:
        del self.broker.sessions[number]
        self.billing.happened(Event(Kind.ENDED, number))

    def of(self, tenant: str = "acme") -> tuple[int, float, float, float, int]:
        self.billing.tick()
        found = self.book.of(tenant)
        gib_seconds = found.memory_byte_seconds / GIB
        return found.sessions, found.wall_seconds, found.gpu_seconds, gib_seconds, found.calls


def test_a_session_is_billed_from_start_to_end(tmp_path: Path, clock: Clock) -> None:
    stage = Stage(tmp_path)
    stage.start(1)
    clock.now += 4
    assert stage.of() == (1, 4, 4, 4, 0)
    clock.now += 2
    stage.end(1)
    clock.now += 100
    assert stage.of() == (1, 6, 6, 6, 0)


def test_a_session_of_several_gpus_is_billed_for_each(tmp_path: Path, clock: Clock) -> None:
    """Eight GPUs cost as much as one."""
    stage = Stage(tmp_path)
    stage.begin(1, devices=8)
    stage.billing.happened(Event(Kind.STARTED, 1))
    clock.now += 3
    assert stage.of() == (1, 3, 24, 24, 0)


def test_time_in_a_file_costs_nothing(tmp_path: Path, clock: Clock) -> None:
    stage = Stage(tmp_path)
    one = stage.start(1)
    clock.now += 3
    one.suspend("/file", b"head")
    clock.now += 50
    assert stage.of()[1:4] == (3, 3, 3)
    one.unsuspend()
    clock.now += 1
    assert stage.of()[1:4] == (4, 4, 4)


def test_a_session_that_moves_to_another_server_is_billed_once(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    source, target = Stage(tmp_path / "a"), Stage(tmp_path / "b")
    here = source.start(1)
    here.server.stats = node_pb2.Stats(session=1, calls_sync=10)  # type: ignore[union-attr]
    clock.now += 10
    there = target.start(5, restore=Restore(1, 10.0))  # the copy begins
    clock.now += 7  # which takes that long
    source.billing.moved(here.server, migration_pb2.Moved())  # type: ignore[arg-type]
    here.remote = migration_pb2.RemoteTarget(address="b:7700")
    there.server.stats = node_pb2.Stats(session=5, calls_sync=10)  # type: ignore[union-attr]
    target.billing.taken_over(there.server, 5)  # type: ignore[arg-type]
    there.restoring = False
    target.billing.tick()
    clock.now += 5
    there.server.stats = node_pb2.Stats(session=5, calls_sync=13)  # type: ignore[union-attr]
    assert source.of() == (1, 17, 17, 17, 10)
    assert target.of() == (0, 5, 5, 5, 3)
    source.end(1)
    target.end(5)
    assert source.of()[1] + target.of()[1] == 22


def test_the_next_monitor_bills_the_rest_and_no_more(tmp_path: Path, clock: Clock) -> None:
    first = Stage(tmp_path)
    first.start(1)
    first.start(2)
    clock.now += 8
    first.of()
    first.book.write(first.book.content())
    clock.now += 3  # then it is killed
    second = Stage(tmp_path, inherited=True)
    clock.now += 4
    one = second.begin(1)
    one.phase_began = 1000.0  # its age, as its API server tells it
    second.billing.happened(Event(Kind.ADOPTED, 1))
    assert second.of() == (2, 8 + 8 + 7, 8 + 8 + 7, 8 + 8 + 7, 0)
    three = second.begin(3)  # began after the file was written
    three.phase_began = 1009.0
    second.billing.happened(Event(Kind.ADOPTED, 3))
    assert second.of()[:2] == (3, 8 + 8 + 7 + 6)


def test_a_session_that_comes_back_late_is_billed_once(tmp_path: Path, clock: Clock) -> None:
    """Its API server may say nothing for two minutes. After one the session was taken for a new one, and all
    of its time and calls were billed once more.
    """
    first = Stage(tmp_path)
    first.start(1).server.stats = node_pb2.Stats(session=1, calls_sync=7)  # type: ignore[union-attr]
    clock.now += 8
    first.of()
    first.book.write(first.book.content())  # then it is killed
    second = Stage(tmp_path, inherited=True)
    clock.now += SILENT_SECONDS
    second.of()
    one = second.begin(1)
    one.server.stats = node_pb2.Stats(session=1, calls_sync=9)  # type: ignore[union-attr]
    one.phase_began = 1000.0
    second.billing.happened(Event(Kind.ADOPTED, 1))
    seconds = 8 + SILENT_SECONDS
    assert second.of() == (1, seconds, seconds, seconds, 9)


def test_a_monitor_that_was_stopped_leaves_no_sessions_to_the_next(tmp_path: Path, clock: Clock) -> None:
    """Its session numbers begin anew: what was billed for number 1 is not the new number 1's."""
    first = Stage(tmp_path)
    first.start(1)
    clock.now += 8
    first.billing.close()
    second = Stage(tmp_path, inherited=False)
    one = second.begin(1)
    one.phase_began = clock.now - 2
    second.billing.happened(Event(Kind.ADOPTED, 1))
    assert second.of()[:2] == (2, 10)


def test_calls_are_counted_at_each_look_and_at_the_end(tmp_path: Path, clock: Clock) -> None:
    stage = Stage(tmp_path)
    one = stage.start(1)
    one.server.stats = node_pb2.Stats(session=1, calls_sync=2, calls_async=3)  # type: ignore[union-attr]
    assert stage.of()[4] == 5
    assert stage.of()[4] == 5
    last = node_pb2.Stats(session=1, calls_sync=4, calls_async=3)
    ended = node_pb2.SessionEnded(session=1, stats=last)
    stage.billing.session_ended(one.server, ended)  # type: ignore[arg-type]
    other = node_pb2.SessionEnded(session=1, stats=node_pb2.Stats(session=9, calls_sync=100))
    stage.billing.session_ended(one.server, other)  # type: ignore[arg-type]
    stage.end(1)
    assert stage.of()[4] == 7


def test_days_add_up_to_all(tmp_path: Path, clock: Clock) -> None:
    stage = Stage(tmp_path)
    stage.start(1)
    clock.now += 5
    stage.of()
    stage.day = "2026-11-23"
    clock.now += 7
    stage.of()
    days = {one.day: one.wall_seconds for one in stage.book.days("acme")}
    assert days == {"2026-11-22": 5, "2026-11-23": 7}
    stage.billing.close()
    again = Stage(tmp_path)
    assert {one.day: one.wall_seconds for one in again.book.days("acme")} == days
    for number in range(200):
        again.day = f"2027-{number:03}"
        again.book.add("acme", calls=1)
    assert len(again.book.days("acme")) == usage.DAYS_MOST


def test_an_account_of_all_tenants_and_days_is_not_too_long_for_who_asks() -> None:
    def of(tenant: str) -> tenants_pb2.Report:
        one = tenants_pb2.Usage(
            tenant=tenant, day="2026-11-22", wall_seconds=1.5, gpu_seconds=1.5, memory_byte_seconds=1.5
        )
        days = [one] * usage.DAYS_MOST
        return tenants_pb2.Report(tenant=tenant, days=days)

    class Monitor(control_pb2_grpc.MonitorServicer):  # type: ignore[misc]
        def ListTenants(self, request: tenants_pb2.ListRequest, context: Any) -> tenants_pb2.ListReply:
            return tenants_pb2.ListReply(reports=[of(f"tenant-{i}") for i in range(usage.TENANTS_MOST)])

    server = grpc.server(ThreadPoolExecutor(1))
    control_pb2_grpc.add_MonitorServicer_to_server(Monitor(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with dial(f"127.0.0.1:{port}", None) as channel:
            asked = control_pb2_grpc.MonitorStub(channel).ListTenants(tenants_pb2.ListRequest(), timeout=120)
        assert len(asked.reports) == usage.TENANTS_MOST
    finally:
        server.stop(None)


def test_who_asks_of_one_tenant_has_no_other_ones_account_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant that asked as often as it may kept the monitor busy with those of all others."""
    stage = Stage(tmp_path)
    stage.broker.standing = lambda tenant: Standing(0, 0, 0)
    for name in ("a", "b", "c"):
        stage.book.add(name, sessions=1)
    made: list[str] = []

    def days(name: str, _: int) -> list[tenants_pb2.Usage]:
        made.append(name)
        return []

    monkeypatch.setattr(stage.book, "days", days)
    assert [one.tenant for one in stage.billing.asked("b")] == made == ["b"]
    assert not stage.billing.asked("stranger")
    assert [one.tenant for one in stage.billing.asked("")] == ["a", "b", "c"]


def test_limits_of_those_that_have_none_of_their_own_can_be_looked_at(tmp_path: Path) -> None:
    """`tenant set default` said what it had set, and `tenant show default` that nothing was known of it."""
    stage = Stage(tmp_path)
    stage.broker.standing = lambda tenant: Standing(0, 0, 0)
    assert not stage.billing.asked("")
    (told,) = stage.billing.asked("default")
    assert (told.set.HasField("queue"), told.limits.queue) == (False, 1000)
    stage.tenancy.update(Source.MACHINE, {"default": Limits(sessions=2)})
    (told,) = stage.billing.asked("default")
    assert (told.set.sessions, told.limits.sessions) == (2, 2)
    assert not stage.billing.reports(2)  # a registry has its own


@pytest.mark.parametrize(
    ("kept", "words"), [(92, "days before 2026-02-01 are not in these figures"), (91, "")]
)
def test_who_asks_for_days_that_were_forgotten_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept: int, words: str
) -> None:
    """A bill for a year was one for three months, without a word."""
    first = datetime.date(2026, 2, 1)
    days = [
        tenants_pb2.Usage(tenant="a", day=str(first + datetime.timedelta(days=number)), sessions=1)
        for number in range(kept)
    ]
    monkeypatch.setattr(tenant, "_reports", lambda *_: [tenants_pb2.Report(tenant="a", days=days)])
    tenant.usage(since="2026-01-01", as_csv=True)
    told = capsys.readouterr()
    assert f"a,{kept}," in told.out
    assert words in told.err
    assert bool(words) == bool(told.err)


def test_names_of_strangers_make_no_series_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "TENANTS_MOST", 3)
    book = UsageBook(tmp_path / "usage.json", is_tenant)
    for name in ("a", "b", "c", "d", "e", 'x"} 1\ny{z="', ""):
        book.add(name, sessions=1)
    text = expose_usage(book.totals()).decode()
    series = [line for line in text.splitlines() if line.startswith("gpuferry_tenant_sessions_total{")]
    assert series == [
        f'gpuferry_tenant_sessions_total{{tenant="{name}"}} {count}'
        for name, count in ((NOBODY, 4.0), ("a", 1.0), ("b", 1.0), ("c", 1.0))
    ]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = UsageBook(tmp_path / "usage.json", is_tenant)
    book.add("acme", sessions=1)
    book.write(book.content())
    before = book.path.read_text()
    for step in ("fsync", "replace"):
        with monkeypatch.context() as broken:

            def full(*_: object) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            if step == "fsync":
                broken.setattr("os.fsync", full)
            else:
                broken.setattr(Path, "replace", full)
            book.add("acme", sessions=1)
            with pytest.raises(OSError, match="No space"):
                book.write(book.content())
        assert book.path.read_text() == before
        assert sorted(one.name for one in tmp_path.iterdir()) == ["usage.json", "usage.lock"]
    book.write(book.content())
    assert json.loads(book.path.read_text())["tenants"]["acme"]["sessions"] == 3


KEEPER = """
import sys
from pathlib import Path
from gpuferry.monitor.tenants.usage import UsageBook

book = UsageBook(Path(sys.argv[1]), lambda name: True)
book.add("acme", sessions=3)
book.write(book.content())
print("written", flush=True)
sys.stdin.read()
"""


def test_two_monitors_with_one_state_folder_do_not_replace_each_other_s_accounts(tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    keeper = [sys.executable, "-c", KEEPER, str(file)]
    with subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "written\n"
        with structlog.testing.capture_logs() as logs:
            second = UsageBook(file, is_tenant)
        assert [one["next_step"] for one in logs] == ["give each monitor its own GPUFERRY_STATE_DIR"]
        second.add("acme", sessions=1)
        second.write(second.content())
        assert first.stdin is not None
        first.stdin.close()
    assert UsageBook(file, is_tenant).of("acme").sessions == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"version": 9}',
        "[]",
        '{"version": 1, "tenants": {"a": 3}}',
        '{"version": 1, "tenants": {}, "days": {}, "sessions": {"1": [1, 1e999]}}',
    ],
)
def test_a_torn_file_is_kept_aside(tmp_path: Path, content: str) -> None:
    file = tmp_path / "usage.json"
    file.write_text(content)
    book = UsageBook(file, is_tenant)
    assert not book.totals()
    (aside,) = tmp_path.glob("usage.unreadable-*")
    assert aside.read_text() == content


def test_a_figure_does_not_overflow(tmp_path: Path) -> None:
    """API servers count, and one that was taken over says what it likes."""
    book = UsageBook(tmp_path / "usage.json", is_tenant, lambda: "2026-11-22")
    for _ in range(2):
        book.add("acme", sessions=1 << 63)
    assert [one.sessions for one in book.totals()] == [(1 << 63) - 1]
