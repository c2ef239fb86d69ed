"""Sessions that go to another GPU server. API servers and keepers are fake, monitors and registry are not."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.migration import follow
from gpuferry.monitor.door import agreement, handshake
from gpuferry.specs._generated import control_pb2, frames, operations

from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused, connect, outcome, read_frame, read_greeting
from tests.monitor.moves import MIB, STATE, guest, migrate, session, settled, start
from tests.registry.running import Registry, registry


@pytest.fixture(scope="module")
def here() -> Iterator[harness.Monitor]:
    with start("--pool", "1", devices=1) as running:
        yield running


@pytest.fixture(scope="module")
def other() -> Iterator[harness.Monitor]:
    with start("--pool", "1", devices=1) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(here: harness.Monitor, other: harness.Monitor) -> Iterator[None]:
    """Both, before and after each test."""
    yield
    for monitor in (here, other):
        for name in ("go", "refuse"):
            Path(monitor.runtime, name).unlink(missing_ok=True)
        status = monitor.wait_idle(1)
        assert not monitor.wait_for(lambda s: not s.sessions, "end of the sessions").sessions
        assert status.devices[0].memory_granted == 0


def arrived(monitor: harness.Monitor) -> Any:
    """The status, once the API server that the session came to has said that it has it."""
    return monitor.wait_for(
        lambda s: s.sessions and s.sessions[0].state == STATE.SESSION_STATE_RUNNING, "arrival"
    )


def test_a_session_goes_to_another_server(here: harness.Monitor, other: harness.Monitor) -> None:
    with guest(here, "resnet", tenant=b"acme", program=b"train", pid=77) as one:
        before = session(here)
        done = migrate(here, before.id, "--to", other.tcp)
        assert done.returncode == 0, done.stderr
        assert one.echo(b"by way of the keeper") == b"by way of the keeper"
        (there,) = arrived(other).sessions
        assert f"it is session {there.id} there" in done.stdout
        for field in ("function", "tenant", "program", "guest_pid", "memory_quota"):
            assert getattr(there, field) == getattr(before, field), field
        assert there.age_seconds >= before.age_seconds
        gone = session(here)
        assert (gone.state, gone.where) == (STATE.SESSION_STATE_MOVED, other.tcp)
        settled(here, [0])
        settled(other, [100])
        here.wait_idle(1)
        again = migrate(here, before.id, "--to", other.tcp)
        assert "has moved to" in again.stderr
        listed = here.run("session", "list").stdout
        assert f"moved to {other.tcp}" in listed


def test_limits_and_age_go_along(here: harness.Monitor, other: harness.Monitor) -> None:
    limits = {4: (1000).to_bytes(4, "little"), 5: (500).to_bytes(4, "little")}
    with guest(here, extensions=limits):
        here.wait_for(lambda s: s.sessions and s.sessions[0].age_seconds > 1, "age")
        assert migrate(here, session(here).id, "--to", other.tcp).returncode == 0
        there = session(other)
        assert (there.wall_limit_seconds, there.idle_limit_seconds) == (1000, 500)
        assert there.age_seconds > 1


def test_one_that_the_other_refuses_stays(here: harness.Monitor, other: harness.Monitor) -> None:
    with guest(other), guest(here) as one:  # no room in the other's pool, and nobody waits that long here
        done = migrate(here, session(here).id, "--to", other.tcp, "--timeout", "1")
        assert done.returncode == 1
        assert "not over within 1 s" in done.stderr
        assert one.echo(b"still") == b"still"
        settled(here, [100])


def test_too_large_for_the_other(here: harness.Monitor) -> None:
    with start("--pool", "1", "--headroom", "1000MiB", devices=1) as small, guest(here) as one:
        small.wait_idle(1)
        done = migrate(here, session(here).id, "--to", small.tcp)
        assert done.returncode == 1
        assert "at most" in done.stderr
        assert one.echo(b"still") == b"still"


def test_nobody_there(here: harness.Monitor) -> None:
    with socket.socket() as nobody, guest(here) as one:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        done = migrate(here, session(here).id, "--to", address)
        assert done.returncode == 1
        assert "cannot connect" in done.stderr
        assert one.echo(b"still") == b"still"


def test_another_token(here: harness.Monitor) -> None:
    with (
        start("--pool", "1", devices=1, GPUFERRY_TOKEN=token_of("another")) as stranger,
        guest(here) as one,
    ):
        done = migrate(here, session(here).id, "--to", stranger.tcp)
        assert done.returncode == 1
        assert "wrong token" in done.stderr
        assert one.echo(b"still") == b"still"


def test_the_other_server_gives_up(here: harness.Monitor, other: harness.Monitor) -> None:
    Path(other.runtime, "refuse").touch()
    with guest(here) as one:
        before = session(here)
        assert migrate(here, before.id, "--to", other.tcp).returncode == 1
        # Its keeper had the socket, and died of it: past the point of no return, and nobody has it.
        with pytest.raises((EOFError, ConnectionError)):
            one.echo(b"gone")


@pytest.mark.system
def test_an_api_server_there_dies_meanwhile(here: harness.Monitor, other: harness.Monitor) -> None:
    with guest(here, "gated") as one:
        request = control_pb2.MigrateRequest(session=session(here).id, server=other.tcp)
        steps = here.stub.Migrate(request, metadata=here.metadata, timeout=harness.DEADLINE)
        other.wait_for(lambda s: s.sessions, "the session that comes")
        assert session(other).state == STATE.SESSION_STATE_MIGRATING
        os.kill(session(other).server_pid, signal.SIGKILL)
        assert list(steps)[-1].state == STATE.MIGRATION_STATE_FAILED
        assert one.echo(b"still") == b"still"


def test_the_monitor_there_is_killed_meanwhile(here: harness.Monitor) -> None:
    """The next one does not wait for a source to come back to it, and end the API server when none does."""
    options = ("--pool", "1", "--orphan-grace", "60")
    with start(*options, devices=1) as first, guest(here, "gated") as one:
        request = control_pb2.MigrateRequest(session=session(here).id, server=first.tcp)
        steps = here.stub.Migrate(request, metadata=here.metadata, timeout=harness.DEADLINE)
        first.wait_for_log('"event": "session started"')  # it is in its API server's hands
        first.process.kill()
        second = first.succeed(*options, constants={"gpuferry.monitor.moves.custody:VERDICT_SECONDS": 0.01})
        second.wait_for(lambda s: s.sessions, "adoption")
        assert session(second).state == STATE.SESSION_STATE_MIGRATING
        assert not second.status().migrations
        Path(here.runtime, "go").touch()
        assert list(steps)[-1].state == STATE.MIGRATION_STATE_DONE
        assert one.echo(b"on") == b"on"
        arrived(second)
        settled(second, [100])


def test_the_guest_leaves_after_the_move(here: harness.Monitor, other: harness.Monitor) -> None:
    one = guest(here)
    assert migrate(here, session(here).id, "--to", other.tcp).returncode == 0
    one.close()
    other.wait_for(lambda s: not s.sessions, "end there")


def resume(address: str, key: bytes, number: int, flags: int = 0) -> tuple[int, bytes]:
    with connect(address) as connection:
        nonce = read_greeting(connection)
        unproven = frames.Resume.LAYOUT.pack(
            frames.PROTOCOL_VERSION, flags, secrets.token_bytes(32), number, 0, b""
        )[:-32]
        proof = hmac.digest(key, frames.PROOF_RESUME + nonce + unproven, hashlib.sha256)
        connection.sendall(frames.frame(frames.Frame.RESUME, unproven + proof))
        return read_frame(connection)


def test_where_it_went_and_whether_it_is_there(here: harness.Monitor, other: harness.Monitor) -> None:
    with guest(here) as one:
        number = session(here).id
        assert follow.ask(here.tcp, one.key, number) is True
        assert follow.ask(here.tcp, b"wrong".ljust(32), number) is False
        assert follow.ask(here.tcp, one.key, number + 1000) is False
        assert migrate(here, number, "--to", other.tcp).returncode == 0
        arrived(other)
        # A guest whose connection broke before it was told is told now.
        op, body = resume(here.tcp, one.key, number)
        assert op == frames.Frame.MOVED
        proof, nonce, hidden, there, size = frames.Moved.unpack(body)
        assert proof == hmac.digest(one.key, frames.PROOF_MOVED + body[32:], hashlib.sha256)
        mask = hmac.digest(one.key, frames.KEY_MOVED + nonce, hashlib.sha256)
        key = bytes(a ^ b for a, b in zip(hidden, mask, strict=True))
        assert (there, body[-size:].decode()) == (session(other).id, other.tcp)
        assert follow.ask(other.tcp, key, there) is True
        assert follow.ask(other.tcp, one.key, there) is False
    other.wait_for(lambda s: not s.sessions, "end there")
    assert follow.ask(other.tcp, key, there) is False
    assert resume(here.tcp, one.key, number)[0] == frames.Frame.MOVED


def test_a_suspended_session_goes_to_another_server(
    here: harness.Monitor, other: harness.Monitor, tmp_path: Path
) -> None:
    file = str(tmp_path / "snapshot")
    with guest(here) as one:
        assert here.run("session", "suspend", str(session(here).id), file).returncode == 0
        done = here.run("session", "resume", file, "--to", other.tcp)
        assert done.returncode == 0, done.stderr
        assert one.echo(b"over there") == b"over there"
        assert session(here).state == STATE.SESSION_STATE_MOVED
        arrived(other)


# -- by way of the registry


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Registry, harness.Monitor, harness.Monitor]]:
    with registry() as running:
        joined = ("--registry", running.control, "--cluster-key-file", running.key_file, "--http", "none")
        with (
            start("--pool", "1", *joined, devices=1) as one,
            start("--pool", "1", *joined, devices=1, GPUFERRY_TOKEN=token_of("another")) as two,
        ):
            for monitor in (one, two):
                running.register(monitor.tcp)
                running.wait_for(monitor.tcp, alive=True)
            yield running, one, two


@pytest.mark.system
def test_a_server_that_the_registry_knows(cluster: Any) -> None:
    running, one, two = cluster
    with guest(one) as inside:
        done = migrate(one, session(one).id, "--to", two.tcp)
        assert done.returncode == 0, done.stderr
        assert inside.echo(b"with a ticket") == b"with a ticket"
        arrived(two)
    one.wait_for(lambda s: not s.sessions, "the end of the keeper's session")
    one.wait_idle(1)
    with guest(one) as inside:
        several = migrate(one, session(one).id, "--to", "127.0.0.1")
        assert "say which" in several.stderr
        unknown = migrate(one, session(one).id, "--to", "gpu-b")
        assert "no such GPU server is registered" in unknown.stderr
        running.on("Drain", two.tcp)
        drained = migrate(one, session(one).id, "--to", two.tcp)
        assert "is being drained" in drained.stderr
        running.on("Undrain", two.tcp)
        assert inside.echo(b"still") == b"still"


@pytest.mark.system
def test_only_gpu_servers_hand_sessions_over(cluster: Any) -> None:
    """A guest with a ticket of its own cannot begin to restore."""
    running, one, _ = cluster
    from gpuferry.monitor.door import tickets

    server = running.servers()[one.tcp]
    for key_of, expected in ((tickets.session_key, True), (tickets.restore_key, False)):
        ticket = tickets.issue(running.key, server.load.incarnation, "acme", server.load.clock / 1000)
        key = key_of(running.key, ticket)
        extensions = {1: ticket, 6: frames.Restore(1, 0).pack()}
        if expected:
            with pytest.raises(Refused) as caught:
                hand_over(one, key, extensions)
            assert caught.value.reason == handshake.Reason.DENIED
        else:
            hand_over(one, key, extensions)


def hand_over(monitor: harness.Monitor, key: bytes, extensions: dict[int, bytes]) -> bytes:
    with connect(monitor.tcp) as connection:
        server_nonce, nonce = read_greeting(connection), secrets.token_bytes(32)
        packed = b"".join(
            handshake.extension(handshake.Extension(kind), value) for kind, value in extensions.items()
        )
        wish = handshake.Hello(nonce, 1, 100 * MIB, "acme", "", "fake")
        connection.sendall(
            handshake.restoring_hello(
                key, server_nonce, nonce, wish, agreement.offer(operations.BUILD), packed
            )
        )
        return outcome(connection)


def test_a_tenant_is_no_gpu_server(here: harness.Monitor, other: harness.Monitor) -> None:
    token = here.run("token", "create", "acme").stdout.strip()
    with pytest.raises(Refused) as caught:
        FakeGuest(here.tcp, token, tenant=b"acme", extensions={6: frames.Restore(1, 0).pack()})
    assert caught.value.reason == handshake.Reason.DENIED
    assert "only a GPU server" in caught.value.text
