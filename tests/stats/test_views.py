"""`gpuferry smi` and `gpuferry top`: what they draw of a status."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest
from gpuferry.monitor.cli import client, errors, smi, status, terminal, top
from gpuferry.monitor.cli import session as commands
from gpuferry.monitor.door.handshake import Hello
from gpuferry.monitor.sessions.session import Session
from gpuferry.monitor.views.callers import OPERATOR, Caller
from gpuferry.monitor.views.stats import plain
from gpuferry.monitor.views.stats.accounting import Accounting
from gpuferry.monitor.views.stats.metrics import Metrics
from gpuferry.monitor.views.stats.observatory import Observatory
from gpuferry.monitor.views.status import StatusReporter
from gpuferry.specs._generated import control_pb2, node_pb2
from rich.console import Console

from tests.web.stage import GIB, device, empty, monitor, session


def busy(uptime: float = 100.0, calls: int = 0) -> control_pb2.StatusReply:
    return control_pb2.StatusReply(
        monitor=monitor(uptime_seconds=uptime),
        devices=[
            device(0, utilization=0.5, memory_used=15 * GIB, memory_granted=24 * GIB, pool_idle=0),
            device(1, state=control_pb2.DEVICE_STATE_LOST, utilization=None, memory_used=None, power=None),
        ],
        sessions=[session(11, program="train[red].py", function="resnet50", calls_async=1000 + calls)],
        queue=[control_pb2.Waiting(session=15, program="infer.py", memory=30 * GIB, waited_seconds=12)],
    )


def drawn(view: top.View, status: control_pb2.StatusReply, width: int = 160) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(view.render(status))
    return capture.get()


def test_smi_is_a_frame() -> None:
    lines = smi.render(busy()).splitlines()
    framed = [line for line in lines if line.startswith(("|", "+"))]
    assert {len(line) for line in framed} == {smi.INNER + 2}
    text = "\n".join(lines)
    for figure in (
        "NVIDIA A100-SXM4-40GB",
        "15360MiB / 40960MiB",
        "50%",
        "CUDA Version: 13.5",
        "Lost",
        "N/A",
    ):
        assert figure in text
    assert "train[red].py (resnet50)" in text
    assert "3072MiB / 8192MiB" in text
    assert "1 waiting" in text
    assert "No program uses a GPU" in smi.render(empty())


def test_smi_cuts_what_is_too_long() -> None:
    status = busy()
    status.sessions[0].program = "x" * 300
    status.devices[0].name = "y" * 300
    framed = [line for line in smi.render(status).splitlines() if line.startswith("|")]
    assert {len(line) for line in framed} == {smi.INNER + 2}


def test_smi_before_anything_is_known() -> None:
    status = control_pb2.StatusReply(monitor=monitor(), devices=[control_pb2.Device(ordinal=0)])
    assert "CUDA Version: N/A" in smi.render(status)


def test_top_shows_what_the_page_shows() -> None:
    view = top.View()
    text = drawn(view, busy())
    for figure in ("gpu-a", "50%", "15 GiB / 40 GiB", "LOST", "GPU 1 is lost", "train[red].py", "infer.py"):
        assert figure in text
    later = drawn(view, busy(102.0, calls=5000))
    assert "2,500" in later
    assert top.sparkline(view._past[0]).plain.endswith("▅▅")
    assert "no sessions" in drawn(top.View(), empty())


def test_a_session_of_several_gpus_is_shown_on_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said to be on the first, and the others to be without sessions."""
    both = busy()
    both.sessions[0].devices[:] = [0, 1]
    assert status.place_of(both.sessions[0]) == "0,1"
    counts = [line.split()[-2] for line in smi.render(both).splitlines() if "00000000:0" in line]
    assert counts == ["1", "1"]
    one = plain.as_json(both.sessions[0]) | {"state": "running"}
    monkeypatch.setattr(commands, "_fetch", lambda *_: [one])
    commands.show_all()
    assert "running on gpu:0,1" in capsys.readouterr().out


def test_top_says_that_a_server_is_drained() -> None:
    drained = busy()
    drained.monitor.draining = True
    assert "drained: no new sessions, 1 that run may end" in drawn(top.View(), drained)


def test_meter_and_sparkline() -> None:
    from collections import deque

    assert top.meter(0.0).plain == " " * top.METER
    assert top.meter(1.0).plain == top.meter(7.0).plain == "█" * top.METER
    past: deque[Any] = deque([None, 0.0, 1.0], maxlen=top.PAST)
    assert top.sparkline(past).plain == f"{' ▁█':>{top.PAST}}"


class _Monitor:
    """Answers `gpuferry status` and `gpuferry session list`."""

    def __init__(self, status: control_pb2.StatusReply) -> None:
        self._status = status

    def Status(self, *_: object, **__: object) -> control_pb2.StatusReply:
        return self._status


@pytest.mark.parametrize("name", ["[/]", "[/red]", "[link=http://b.example]a[/link]", "[conceal]a", ":bomb:"])
def test_names_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Brackets of one program's name would end the command for all, hide a row, or be a link."""
    found = busy()
    found.sessions[0].program = found.queue[0].function = name
    found.sessions[0].state = control_pb2.SESSION_STATE_RUNNING

    @contextmanager
    def answered(*_: object) -> Iterator[tuple[_Monitor, tuple[()]]]:
        yield _Monitor(found), ()

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(client, "monitor_client", answered)
    monkeypatch.setattr(status, "monitor_client", answered)
    status.show_status(None, None, False, None, 1.0)
    commands.show_all()
    assert capsys.readouterr().out.count(name) == 4


def test_no_monitor_steers_the_terminal() -> None:
    """Whoever answers there may say what it likes."""
    found = busy()
    found.monitor.version = found.devices[0].problem = found.devices[0].name = "\x1b[2J"
    found.queue[0].reason = found.sessions[0].function = "\x1b]0;mine\x07"
    found.migrations.add(session=11, reason="\x1b[31m", source="\x9b")
    found.devices[0].state = control_pb2.DEVICE_STATE_FAILING
    console = terminal.plain(200)
    with console.capture() as capture:
        console.print(status.render(found), top.View().render(found))
    assert not set("\x1b\x07\x9b") & set(capture.get())


NEWER: Any = 77  # a state that only a newer monitor knows


def test_states_of_a_newer_monitor_are_shown_by_number() -> None:
    found = busy()
    found.devices[0].state = NEWER
    found.servers.add(pid=1, state=NEWER)
    found.migrations.add(session=11, state=NEWER)
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(status.render(found))
    assert capture.get().count(f" {NEWER} ") == 3

    assert str(NEWER) in smi.render(found)
    assert plain.status_json(found)["devices"][0]["state"] == str(NEWER)


def test_a_session_in_a_newer_monitors_state_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"id": 5, "state": "77", "program": "a", "function": "", "tenant": "", "guest_pid": 7}
    monkeypatch.setattr(commands, "_fetch", lambda *_: [one])
    commands.show_all()
    assert "77" in capsys.readouterr().out


def test_sessions_are_listed_with_their_ids(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which were the first to go where 80 columns did not do, in a pipe too."""
    one = {"id": 12345, "lease": 54321, "state": "running", "device": 0, "program": "p" * 40, "function": ""}
    monkeypatch.setattr(commands, "_fetch", lambda *_: [one | {"tenant": "t" * 60, "guest_pid": 1234567}])
    commands.show_all()
    said = capsys.readouterr().out
    for whole in ("12345", "54321", "running on gpu:0", "p" * 40, "t" * 60, "1234567"):
        assert whole in said
    monkeypatch.setattr(terminal, "console", lambda: Console(width=60, force_terminal=False))
    commands.show_all()
    assert capsys.readouterr().out.splitlines()[1].startswith("12345 ")


def test_a_tenants_page_has_its_own_api_servers_asked_alone() -> None:
    """All were, each second for as long as it was open."""
    asked: list[str | None] = []

    async def report(tenant: str | None = None) -> control_pb2.StatusReply:
        asked.append(tenant)
        return busy()

    async def main() -> None:
        reporter: Any = SimpleNamespace(report=report, ask_arbiter=AsyncMock(), devices=list)
        pool: Any = SimpleNamespace(servers={})
        watched = Observatory(MagicMock(), pool, reporter, MagicMock(), MagicMock())
        pages = [watched.events(caller) for caller in (Caller("a"), Caller("a"), Caller("b"), OPERATOR)]

        async def read(page: AsyncIterator[str]) -> str:
            return await asyncio.wait_for(anext(page), 30)

        for page in pages[:3]:
            await read(page)
        asked.clear()
        await watched.tick()
        assert sorted(asked, key=str) == ["a", "b"]
        one, other, anothers = [await read(page) for page in pages[:3]]
        assert one == other != ""
        assert "train[red].py" not in anothers
        for _ in ("history", "status"):
            await read(pages[3])
        asked.clear()
        await watched.tick()
        assert asked == [None]
        for page in pages:
            assert "event: status" in await read(page)

    asyncio.run(main())


def test_an_older_monitor_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_TOKEN", "0123456789abcdef")
    with (
        pytest.raises(errors.CliError, match="older than this gpuferry"),
        client.monitor_client("unix:/nowhere", None),
    ):
        raise Unimplemented


@pytest.mark.parametrize("order", ["evict", "recall", "suspend"])
def test_an_order_without_a_limit_ends_where_the_monitor_answers_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: str
) -> None:
    """They waited for ever where it hung, or its machine was gone."""
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.001)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.05)
    monkeypatch.setenv("GPUFERRY_TOKEN", "0123456789abcdef")
    control, file = f"unix:{tmp_path}/control", str(tmp_path / "file")
    given = {"evict": (7,), "recall": (7, 3600.0), "suspend": (7, file, 0.0)}[order]
    with socket.socket(socket.AF_UNIX) as hangs:
        hangs.bind(control.removeprefix("unix:"))
        hangs.listen()
        with pytest.raises(errors.CliError, match="no answer in time"):
            getattr(commands, order)(*given, control=control)


def test_who_watches_asks_again_and_again_with_a_limit_for_each_answer() -> None:
    """`top` showed for ever what a monitor that hung, or whose machine was gone, had said last."""
    limits: list[float] = []

    def answer(request: control_pb2.StatusRequest, metadata: object, timeout: float) -> object:
        limits.append(timeout)
        if len(limits) == 3:
            raise Late
        return busy()

    stub: Any = SimpleNamespace(Status=answer)
    with pytest.raises(Late):
        list(client.looks(stub, (), 0.0, 7.0))
    assert limits == [7.0] * 3


class Late(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED


class Unimplemented(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNIMPLEMENTED

    def details(self) -> str:
        return "Method not found!"


@pytest.mark.parametrize(("tenant", "asked"), [("a", ["a"]), ("stranger", []), (None, ["a", "b", "idle"])])
def test_only_those_are_asked_for_figures_who_are_seen(tenant: str | None, asked: list[str]) -> None:
    """A tenant that looked as often as it may had the monitor ask all API servers each time."""
    heard: list[str] = []

    def server(name: str) -> Any:
        async def refresh_stats(_: float) -> None:
            heard.append(name)

        return SimpleNamespace(ready=True, refresh_stats=refresh_stats)

    servers = {name: server(name) for name in ("a", "b", "idle")}
    running = [
        SimpleNamespace(hello=SimpleNamespace(tenant=name), server=servers[name]) for name in ("a", "b")
    ]
    pool: Any = SimpleNamespace(everyone=lambda: list(servers.values()))
    broker: Any = SimpleNamespace(running=lambda: running)
    nothing: Any = None
    reporter = StatusReporter(nothing, pool, broker, nothing, [], "", nothing)
    reporter._last_known = lambda tenant: control_pb2.StatusReply()  # type: ignore[method-assign]
    asyncio.run(reporter.report(tenant))
    assert heard == asked


def test_what_a_session_of_several_gpus_has_is_counted_on_each_by_itself() -> None:
    """All of it was on each: metrics and charts had a GPU's memory several times over."""
    stats = node_pb2.Stats(memory_mapped=5 * GIB, mapped_on=[2 * GIB, 3 * GIB])
    pool: Any = SimpleNamespace(
        servers={
            1: SimpleNamespace(several=True, devices=(2, 5), stats=stats),
            2: SimpleNamespace(several=False, devices=(2,), stats=node_pb2.Stats(memory_mapped=GIB)),
        }
    )
    nothing: Any = None
    reporter = StatusReporter(nothing, pool, nothing, nothing, [], "", nothing)
    assert [reporter._mapped(1, device) for device in (2, 5)] == [2 * GIB, 3 * GIB]
    assert (reporter._mapped(2, 2), reporter._mapped(3, 2)) == (GIB, 0)


def test_what_a_session_may_have_and_has_is_of_all_its_gpus() -> None:
    """It was shown to have 5 GiB of 3, for it may have 3 on each."""
    one = Session(7, Hello(b"", 1, 0, "", "", "p", devices=2), "unix", None)
    one.grant = node_pb2.Grant(session=7, memory_quota=3 * GIB)
    stats = node_pb2.Stats(session=7, memory_mapped=5 * GIB)
    one.server = SimpleNamespace(stats=stats, pid=1, is_keeper=True)  # type: ignore[assignment]
    broker: Any = SimpleNamespace(custody=SimpleNamespace(migration_of=lambda number: None))
    nothing: Any = None
    told = StatusReporter(nothing, nothing, broker, nothing, [], "", nothing)._session(one, None)
    assert (told.memory_mapped, told.memory_quota) == (5 * GIB, 6 * GIB)


def test_sessions_that_are_elsewhere_are_not_counted_as_running() -> None:
    states = ("RUNNING", "MIGRATING", "SUSPENDED", "MOVED")
    sessions = [session(11, state=control_pb2.SessionState.Value(f"SESSION_STATE_{one}")) for one in states]
    shown = Metrics().expose(control_pb2.StatusReply(sessions=sessions), Accounting())
    assert b"\ngpuferry_sessions 2.0\n" in shown
