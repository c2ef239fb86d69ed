"""Tenants and their tokens at a monitor: made, used, revoked, and in no place where they should not be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from gpuferry.monitor.door.handshake import Reason
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.door.tokens.book import TOKENS_MOST, TokenBook, new_record
from gpuferry.monitor.settings.folders import STORE
from gpuferry.monitor.store.sqlite import SqliteStore
from gpuferry.specs._generated import control_pb2
from gpuferry.specs._generated.frames import KEY_CLIENT

from tests.helpers import page, processes
from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.registry.guest import Guest, Identity, Refused, Request, ask


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "2", "--http", "127.0.0.1:0") as running:
        running.wait_idle(2)
        yield running


def book(monitor: harness.Monitor, use: Callable[[TokenBook], Awaitable[None]]) -> None:
    """What the commands do, without starting one."""

    async def main() -> None:
        store = SqliteStore(Path(f"{monitor.runtime}-state", STORE))
        await use(TokenBook(store))
        await store.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _no_tokens_left(monitor: harness.Monitor) -> Iterator[None]:
    yield

    async def revoke(tokens: TokenBook) -> None:
        for token in await tokens.all():
            await tokens.revoke(token.tenant, token.id, kill=False)

    book(monitor, revoke)
    monitor.wait_idle(2)


def create(monitor: harness.Monitor, tenant: str = "acme") -> str:
    token = proof.make(tenant)
    book(monitor, lambda tokens: tokens.add(new_record(token)))
    return token


def listed(monitor: harness.Monitor) -> list[dict[str, str]]:
    answer = json.loads(monitor.run("token", "list", "--json").stdout)
    assert answer["schema"] == "gpuferry.tokens/1"
    tokens: list[dict[str, str]] = answer["tokens"]
    return tokens


def denied(monitor: harness.Monitor, identity: Identity, recorded: bytes = b"") -> str:
    with pytest.raises(Refused) as caught:
        ask(monitor.tcp, identity, Request(), recorded)
    assert (caught.value.reason, caught.value.cuda_error) == (Reason.DENIED, 800)
    return caught.value.text


def test_a_token_lets_its_tenant_in(monitor: harness.Monitor) -> None:
    result = monitor.run("token", "create", "acme")
    assert result.returncode == 0, result.stderr
    (token,) = result.stdout.splitlines()
    assert proof.tenant_of(token) == "acme"
    with Guest(monitor.tcp, token) as guest:
        assert guest.echo(b"x") == b"x"
        assert [session.tenant for session in monitor.status().sessions] == ["acme"]
    with Guest(monitor.address, monitor.token, tenant="acme"):  # the monitor's own goes on working
        pass


def test_nothing_tells_why_a_proof_is_wrong(monitor: harness.Monitor) -> None:
    token = create(monitor)
    secret = token.rpartition(".")[2]
    wrong = [
        Identity(proof.make("acme")),  # a tenant with another token
        Identity(proof.make("nobody")),  # a tenant without
        Identity(f"gft.other.{secret}"),  # the secret under another name
        Identity(token[:-1] + ("A" if token[-1] != "A" else "E")),
        Identity(secret, tenant="acme"),  # not as a tenant proves
        Identity("", tenant="acme"),
        Identity("", tenant="../../etc"),
        Identity("", tenant="ÄÖ"),
        Identity(monitor.token[:-1]),
    ]
    assert len({denied(monitor, identity) for identity in wrong}) == 1


def test_a_recording_is_useless(monitor: harness.Monitor) -> None:
    token = create(monitor)
    with Guest(monitor.tcp, token) as guest:
        denied(monitor, Identity(token), recorded=guest.sent)


def test_a_revoked_token_is_unknown_at_once(monitor: harness.Monitor) -> None:
    token = create(monitor)
    with Guest(monitor.tcp, token) as guest:
        result = monitor.run("token", "revoke", "acme", "--yes")
        assert (result.returncode, result.stdout) == (0, "")
        denied(monitor, Identity(token))
        assert guest.echo(b"goes on") == b"goes on"
    assert monitor.run("token", "revoke", "acme", "--yes").returncode == 3


def test_revoked_with_its_sessions(monitor: harness.Monitor) -> None:
    token, other = create(monitor), create(monitor, "other")
    with Guest(monitor.tcp, token) as guest, Guest(monitor.tcp, other) as bystander:
        assert monitor.run("token", "revoke", "acme", "--kill", "--yes").returncode == 0
        assert guest.connection.recv(1) == b""
        assert bystander.echo(b"x") == b"x"


@pytest.mark.system
def test_those_that_come_back_to_the_next_monitor_end_too() -> None:
    """The order is found before they are, and they went on. Who came once it was carried out goes on."""
    looks = {"gpuferry.monitor.cluster.membership:LOCAL_KILLS_SECONDS": 0.05}
    options = ("--pool", "3", "--orphan-grace", "60")
    with harness.monitor(*options, constants=looks, GPUFERRY_TOKEN=token_of("both monitors")) as first:
        token = create(first)
        with Guest(first.tcp, create(first, "beta")) as before:
            assert first.run("token", "revoke", "beta", "--kill", "--yes").returncode == 0
            assert before.connection.recv(1) == b""
        with Guest(first.tcp, create(first, "beta")) as since, Guest(first.tcp, token) as old:
            assert since.echo(b"x") == b"x"
            (session,) = [each for each in first.status().sessions if each.tenant == "acme"]
            os.kill(session.server_pid, signal.SIGSTOP)
            first.process.kill()
            second = first.succeed(*options, constants=looks)
            with Guest(second.tcp, token) as new:
                assert second.run("token", "revoke", "acme", "--kill", "--yes").returncode == 0
                assert new.connection.recv(1) == b""
            os.kill(session.server_pid, signal.SIGCONT)
            assert old.connection.recv(1) == b""
            assert since.echo(b"x") == b"x"


def test_the_sessions_of_tokens_that_were_revoked_before_can_be_ended(monitor: harness.Monitor) -> None:
    with Guest(monitor.tcp, create(monitor)) as guest:
        assert monitor.run("token", "revoke", "acme", "--yes").returncode == 0
        assert guest.echo(b"on") == b"on"
        late = monitor.run("token", "revoke", "acme", "--kill", "--yes")
        assert (late.returncode, late.stderr) == (0, "acme has no tokens; sessions that it still has end\n")
        assert guest.connection.recv(1) == b""


def test_tokens_can_be_exchanged_without_a_gap(monitor: harness.Monitor) -> None:
    old, new = create(monitor), create(monitor)
    for token in (old, new):
        Guest(monitor.tcp, token).close()
    known = proof.token_id(proof.verifier(old))
    assert {entry["id"] for entry in listed(monitor)} >= {known}
    assert monitor.run("token", "revoke", "acme", "--id", known, "--yes").returncode == 0
    denied(monitor, Identity(old))
    Guest(monitor.tcp, new).close()


def test_wrong_usage(monitor: harness.Monitor) -> None:
    assert monitor.run("token", "create", "No Such").returncode == 2
    reserved = monitor.run("token", "create", "default")  # its limits would be everybody's
    assert (reserved.returncode, reserved.stdout) == (2, "")
    assert "no tenant can be called default" in reserved.stderr
    assert monitor.run("token", "revoke", "nobody", "--yes").returncode == 3
    create(monitor)
    result = monitor.run("token", "revoke", "acme")  # nobody there to ask
    assert result.returncode == 2
    assert "--yes" in result.stderr
    for _ in range(3):
        create(monitor)
    assert monitor.run("token", "create", "acme").returncode == 1


def test_tokens_that_are_made_at_the_same_time_shut_none_out(tmp_path: Path) -> None:
    """There were more than are checked then, and one that had been in use for long was refused."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "tokens.db")
        book = TokenBook(store)
        made = [new_record(proof.make("acme")) for _ in range(6)]
        for record in made[:3]:
            await book.add(record)
        await asyncio.gather(*map(book.add, made[3:]), return_exceptions=True)
        kept = {record.id for record in await book.all()}
        assert kept >= {record.id for record in made[:3]}
        assert len(kept) <= TOKENS_MOST
        await store.close()

    asyncio.run(main())


def test_tokens_open_a_port_to_other_machines(monitor: harness.Monitor) -> None:
    """Without one, a monitor refuses to listen there."""
    arguments = ("monitor", "--listen", "0.0.0.0:0", "--insecure", "--socket", "none", "--http", "none")
    runtime = f"{monitor.runtime}-other"
    refused = harness.gpuferry(runtime, *arguments)
    assert refused.returncode == 1
    assert "token create" in refused.stderr
    assert harness.gpuferry(runtime, "token", "create", "acme").returncode == 0
    try:
        with harness.monitor("--listen", "0.0.0.0:0", "--insecure", GPUFERRY_STATE_DIR=f"{runtime}-state"):
            pass
    finally:
        (Path(f"{runtime}-state") / "gpuferry.db").unlink()


def test_the_pages_key_opens_nothing_else(monitor: harness.Monitor) -> None:
    key = page.link(monitor.runtime).partition("#")[2]
    assert "gpuferry_" in page.fetch(monitor.runtime, "/metrics")
    denied(monitor, Identity(key))
    metadata = (("authorization", f"Bearer {key}"),)
    for ask_for, request in (
        (monitor.stub.Status, control_pb2.StatusRequest()),
        (monitor.stub.EndSession, control_pb2.EndSessionRequest(session=1)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            ask_for(request, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert monitor.run("status", GPUFERRY_TOKEN=key).returncode == 6


def test_no_secret_is_in_logs_arguments_or_metrics(monitor: harness.Monitor) -> None:
    token = create(monitor)
    known = proof.verifier(token)
    client_key = proof.digest(token.encode(), KEY_CLIENT)
    key = page.link(monitor.runtime).partition("#")[2]
    secrets = [monitor.token, key, token, token.rpartition(".")[2], client_key.hex(), known.stored_key.hex()]
    secrets += [known.server_key.hex()]
    denied(monitor, Identity(token + "x"))
    with Guest(monitor.tcp, token):
        endpoint = Path(monitor.runtime, "endpoint").read_text()
        metrics = page.fetch(monitor.runtime, "/metrics")
        assert "gpuferry_" in metrics
        places = {"log": monitor.log.read_text(), "metrics": metrics, "endpoint": endpoint}
        places["status"] = str(monitor.status())
        places["list"] = str(listed(monitor))
        for pid in processes.descendants(monitor.process.pid):
            places[f"arguments of {pid}"] = processes.told_of(pid, "cmdline")
            if pid != monitor.process.pid:
                places[f"environment of {pid}"] = processes.told_of(pid, "environ")
        assert any(text for place, text in places.items() if place.startswith("environment"))
    found = [place for place, text in places.items() for secret in secrets if secret in text]
    assert not found
