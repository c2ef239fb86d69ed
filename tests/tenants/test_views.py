"""What a tenant's token shows, and does not: by gRPC, by CLI, and on the page."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from gpuferry.monitor.door.handshake import Extension, extension
from gpuferry.monitor.views.callers import Caller, visible
from gpuferry.monitor.views.control import LISTENING_MOST
from gpuferry.monitor.views.web.key import page_key
from gpuferry.specs._generated import control_pb2, tenants_pb2
from gpuferry.specs._generated.frames import Frame

from tests.monitor import harness
from tests.monitor.fake_guest import connect, read_frame, read_greeting
from tests.registry.guest import Guest, Identity, Request, hello

from .stage import as_tenant, code_of, tokens, waiting

# Enough for a test that asks often; one tenant has few, and gets no more in the time of any test.
LIMITS = "a=calls=1000,b=calls=1000,hasty=calls=0.00001,curious=calls=0.00001"
LOOK = extension(Extension.LOOK, b"")
NONCE = bytes(32)


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "2", "--http", "127.0.0.1:0", "--tenants", LIMITS) as running:
        running.wait_idle(2)
        yield running


@pytest.fixture(scope="module")
def token(monitor: harness.Monitor) -> dict[str, str]:
    return tokens(monitor, "a", "b", "hasty")


@pytest.fixture
def both(monitor: harness.Monitor, token: dict[str, str]) -> Iterator[dict[str, int]]:
    """A session of each of two tenants, and one that waits; their numbers."""
    with Guest(monitor.tcp, token["a"]), Guest(monitor.tcp, token["b"]):
        connection, _, _ = waiting(monitor, token["b"], function="secret")
        with connection:
            status = monitor.wait_for(lambda found: len(found.sessions) == 2 and found.queue, "all there")
            numbers = {session.tenant: session.id for session in status.sessions}
            yield numbers | {"waiting": status.queue[0].session}
    monitor.wait_for(lambda found: not found.sessions and not found.queue, "all gone")


def test_a_tenant_sees_its_own_sessions_and_nothing_of_others(
    monitor: harness.Monitor, token: dict[str, str], both: dict[str, int]
) -> None:
    request = control_pb2.StatusRequest()
    seen = monitor.stub.Status(request, metadata=as_tenant(token["a"]), timeout=harness.DEADLINE)
    assert [session.id for session in seen.sessions] == [both["a"]]
    assert not seen.queue
    assert not seen.servers
    assert (seen.monitor.sessions_granted, seen.monitor.sessions_refused, seen.monitor.pid) == (0, 0, 0)
    (device,) = seen.devices
    assert device.memory_total
    assert (device.memory_granted, device.pool_idle, device.pool_size) == (0, 0, 0)
    assert not device.HasField("utilization")
    (mine,) = seen.sessions
    assert mine.server_pid == 0
    watching = monitor.stub.WatchStatus(
        control_pb2.WatchStatusRequest(), metadata=as_tenant(token["a"]), timeout=harness.DEADLINE
    )
    assert [session.id for session in next(watching).sessions] == [both["a"]]
    watching.cancel()
    everything = monitor.status()  # the same look sees all, for the operator
    assert {session.tenant for session in everything.sessions} == {"a", "b"}
    assert everything.queue
    assert everything.servers


@pytest.mark.parametrize("state", [control_pb2.SESSION_STATE_SUSPENDED, control_pb2.SESSION_STATE_MIGRATING])
def test_where_the_operator_keeps_files_is_not_told(state: control_pb2.SessionState) -> None:
    """On their way out of one, too, and why one could not be written."""
    path = "/srv/operator/its-files/7"
    there = control_pb2.Migration(session=7, source="gpu:0", target=path, reason=f"cannot write {path}: full")
    back = control_pb2.Migration(session=7, source=path, target="gpu:0")
    status = control_pb2.StatusReply(
        sessions=[control_pb2.Session(id=7, tenant="a", state=state, where=path)], migrations=[there, back]
    )
    seen = visible(status, Caller("a"))
    assert [session.id for session in seen.sessions] == [7]
    assert [(one.source, one.target) for one in seen.migrations] == [("gpu:0", "a file"), ("a file", "gpu:0")]
    assert seen.migrations[0].reason == "cannot write a file: full"
    assert "operator" not in str(seen)
    assert "operator" in str(visible(status, Caller()))


def test_who_watches_every_nan_seconds_watches(monitor: harness.Monitor, token: dict[str, str]) -> None:
    request = control_pb2.WatchStatusRequest(interval_seconds=math.nan)
    watching = monitor.stub.WatchStatus(request, metadata=as_tenant(token["a"]), timeout=harness.DEADLINE)
    assert next(watching).devices
    assert next(watching).devices
    watching.cancel()


def test_what_is_anothers_and_what_does_not_exist_are_told_alike(
    monitor: harness.Monitor, token: dict[str, str], both: dict[str, int]
) -> None:
    def end(number: int) -> tuple[grpc.StatusCode, str]:
        request = control_pb2.EndSessionRequest(session=number)
        code, text = code_of(monitor.stub.EndSession, request, token["a"])
        return code, text.replace(str(number), "N")

    assert end(both["b"]) == end(both["waiting"]) == end(10**9)
    assert end(both["b"])[0] is grpc.StatusCode.NOT_FOUND
    assert {session.tenant for session in monitor.status().sessions} == {"a", "b"}


def test_a_tenant_ends_its_own_by_cli(monitor: harness.Monitor, token: dict[str, str]) -> None:
    with Guest(monitor.tcp, token["a"]) as guest, Guest(monitor.tcp, token["b"]) as bystander:
        listed = monitor.run("session", "list", "--json", GPUFERRY_TOKEN=token["a"], GPUFERRY_TOKEN_FILE=None)
        (mine,) = json.loads(listed.stdout)["sessions"]
        killed = monitor.run("session", "kill", str(mine["id"]), GPUFERRY_TOKEN=token["a"])
        assert killed.returncode == 0, killed.stderr
        assert guest.connection.recv(1) == b""
        assert bystander.echo(b"x") == b"x"
        denied = monitor.run("migrate", str(mine["id"]), "--to", "gpu:0", GPUFERRY_TOKEN=token["a"])
        assert denied.returncode == 6
        assert "Migrate is the operator's" in denied.stderr


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("Migrate", lambda number: control_pb2.MigrateRequest(session=number, device=0)),
        ("Migrate", lambda number: control_pb2.MigrateRequest(session=number, file="/tmp/x", dry_run=True)),
        ("ResumeSession", lambda _: control_pb2.ResumeSessionRequest(file="/etc/passwd")),
    ],
)
def test_what_is_the_operators_is_denied_whoever_has_the_session(
    monitor: harness.Monitor,
    token: dict[str, str],
    both: dict[str, int],
    method: str,
    request_of: object,
) -> None:
    assert callable(request_of)
    answers = {
        code_of(getattr(monitor.stub, method), request_of(number), token["a"])
        for number in (both["a"], both["b"], 10**9)
    }
    ((code, text),) = answers
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "is the operator's" in text


def test_a_token_of_nobody(monitor: harness.Monitor, token: dict[str, str]) -> None:
    wrong = [token["a"][:-2] + "xx", "gft.a.x", "gft.nobody." + "A" * 43, "", monitor.token[:-1]]
    answers = {code_of(monitor.stub.Status, control_pb2.StatusRequest(), one) for one in wrong}
    assert answers == {(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")}


def revoke(monitor: harness.Monitor, tenant: str) -> None:
    assert monitor.run("token", "revoke", tenant, "--yes").returncode == 0


def test_who_watches_is_cut_off_with_the_token(monitor: harness.Monitor) -> None:
    """A thief of a token, say, who began in time."""
    leaver = tokens(monitor, "leaver")["leaver"]
    request = control_pb2.WatchStatusRequest(interval_seconds=1.0)
    watching = monitor.stub.WatchStatus(request, metadata=as_tenant(leaver), timeout=harness.DEADLINE)
    next(watching)
    revoke(monitor, "leaver")
    with pytest.raises(grpc.RpcError) as caught:
        list(watching)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


Note = control_pb2.InvocationNote


def speaking(monitor: harness.Monitor, token: str, *notes: control_pb2.InvocationNote) -> Any:
    """A call of Invocations that has said this, and says no more."""
    said: SimpleQueue[control_pb2.InvocationNote] = SimpleQueue()
    for note in notes:
        said.put(note)
    return monitor.stub.Invocations(iter(said.get, None), metadata=as_tenant(token), timeout=harness.DEADLINE)


def test_who_speaks_of_invocations_is_cut_off_with_the_token(monitor: harness.Monitor) -> None:
    leaver = tokens(monitor, "leaver")["leaver"]
    call = speaking(monitor, leaver, Note(program=bytes(32), what=Note.BEGINS))
    assert next(call).gpus
    revoke(monitor, "leaver")
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_tenant_has_few_calls_that_stay_open(monitor: harness.Monitor, token: dict[str, str]) -> None:
    calls = [speaking(monitor, token["a"]) for _ in range(LISTENING_MOST)]
    assert all(next(call).gpus for call in calls)
    other = speaking(monitor, token["b"])
    assert next(other).gpus
    with pytest.raises(grpc.RpcError) as caught:
        next(speaking(monitor, token["a"]))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for call in (*calls, other):
        call.cancel()


def test_calls_beyond_the_limit_are_refused_and_others_are_not(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    request = control_pb2.StatusRequest()
    monitor.stub.Status(request, metadata=as_tenant(token["hasty"]), timeout=harness.DEADLINE)
    code, text = code_of(monitor.stub.Status, request, token["hasty"])
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "tenant hasty may make 1e-05/s calls (limit calls)" in text
    monitor.stub.Status(request, metadata=as_tenant(token["a"]), timeout=harness.DEADLINE)


def test_a_look_is_a_call(monitor: harness.Monitor) -> None:
    """A guest's, for NVML: it takes no session, but a monitor's work."""
    token = tokens(monitor, "curious")["curious"]
    ops = []
    for _ in range(2):
        with connect(monitor.tcp) as connection:
            connection.sendall(hello(Identity(token), read_greeting(connection), NONCE, Request(extra=LOOK)))
            op, body = read_frame(connection)
        ops.append(op)
    assert ops == [Frame.DEVICES, Frame.REFUSED]
    assert b"tenant curious may make 1e-05/s calls (limit calls)" in body
    with Guest(monitor.tcp, token):
        pass  # sessions are counted by limits of their own


def test_why_a_session_ends_reaches_no_terminal_with_control_characters(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    with Guest(monitor.tcp, token["a"]):
        # The one of the test before may not be over yet.
        (mine,) = monitor.wait_for(lambda status: len(status.sessions) == 1, "it is alone").sessions
        request = control_pb2.EndSessionRequest(session=mine.id, reason="\x1b]0;owned\x07" + "x" * 10000)
        monitor.stub.EndSession(request, metadata=as_tenant(token["a"]), timeout=harness.DEADLINE)
        monitor.wait_for(lambda status: not status.sessions, "ended")
    monitor.wait_for_log("]0;ownedxxx")
    log = monitor.log.read_text()
    assert "\\u001b" not in log
    assert "x" * 501 not in log


def test_a_session_that_ends_as_it_should_is_no_warning(
    monitor: harness.Monitor, token: dict[str, str]
) -> None:
    """Its API server ends with it, as no process serves two tenants."""
    # What becomes of the session of the test before is told before this one begins.
    monitor.wait_for(lambda s: len(s.servers) == 2 == s.devices[0].pool_idle, "those before have ended")
    seen = len(monitor.log.read_text())
    Guest(monitor.tcp, token["a"]).close()
    ended = '"event": "server ended"'
    monitor.wait_for(lambda _: ended in monitor.log.read_text()[seen:], "its API server ended")
    lines, _, _ = monitor.log.read_text()[seen:].rpartition("\n")  # the last one may be half written
    levels = [json.loads(line)["level"] for line in lines.splitlines()]
    assert set(levels) == {"info"}


def test_a_tenant_hears_of_its_own_limits_and_usage_alone(
    monitor: harness.Monitor, token: dict[str, str], both: dict[str, int]
) -> None:
    for asked in ("", "b", "a"):
        reply = monitor.stub.ListTenants(
            tenants_pb2.ListRequest(tenant=asked), metadata=as_tenant(token["a"]), timeout=harness.DEADLINE
        )
        assert [one.tenant for one in reply.reports] == ["a"]
        assert reply.reports[0].sessions == 1
    everything = json.loads(monitor.run("tenant", "list", "--json").stdout)
    assert {one["tenant"] for one in everything["tenants"]} >= {"a", "b", "hasty"}


# -- the page


def page_of(monitor: harness.Monitor) -> http.client.HTTPConnection:
    endpoint = Path(monitor.runtime, "endpoint").read_text()
    published = dict(line.split("=", 1) for line in endpoint.splitlines())
    where = published["GPUFERRY_HTTP"].removeprefix("http://")
    return http.client.HTTPConnection(urlsplit(f"http://{where}").netloc, timeout=harness.DEADLINE)


def ask(monitor: harness.Monitor, path: str, token: str = "") -> tuple[int, str]:
    connection = page_of(monitor)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if path == "/api/events":
            lines = b""
            while b"event: status" not in lines or not lines.endswith(b"\n\n"):
                lines += answer.readline()
            return answer.status, lines.decode()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_an_open_page_is_cut_off_with_the_token(monitor: harness.Monitor) -> None:
    leaver = tokens(monitor, "leaver")["leaver"]
    connection = page_of(monitor)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {leaver}"})
    events = connection.getresponse()
    assert events.readline() == b"event: status\n"
    revoke(monitor, "leaver")
    assert events.read()  # to its end
    connection.close()


@pytest.mark.parametrize("path", ["/api/status", "/api/events", "/metrics"])
def test_the_page_shows_a_tenant_its_own(
    monitor: harness.Monitor, token: dict[str, str], both: dict[str, int], path: str
) -> None:
    code, mine = ask(monitor, path, token["a"])
    assert code == 200
    assert "secret" not in mine
    assert '"tenant": "b"' not in mine
    assert '"tenant":"b"' not in mine
    assert 'tenant="b"' not in mine
    assert "history" not in mine
    _, everything = ask(monitor, path, page_key(None, monitor.token.encode()))
    assert '"b"' in everything
    if path == "/metrics":
        assert 'gpuferry_tenant_sessions_total{tenant="a"} ' in mine
        assert "gpuferry_sessions " not in mine
        assert 'gpuferry_tenant_sessions_total{tenant="b"} ' in everything
    else:
        assert '"a"' in mine
        assert "secret" in everything
