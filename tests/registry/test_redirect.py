"""Guests that come by way of a registry, on three GPU servers without GPUs."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from gpuferry.monitor.cluster.registry.client import CallFailed, answers, path_of
from gpuferry.monitor.cluster.registry.signing import Caller
from gpuferry.monitor.door import tickets
from gpuferry.monitor.door.handshake import CudaError, Extension, Reason
from gpuferry.specs._generated import frames, registry_pb2

from tests.monitor import harness
from tests.registry.guest import Guest, Identity, Redirect, Refused, Request, ask, redirect_of
from tests.registry.running import PATIENT, PROBE, Registry, registry

POOL = 3
GIB = 1 << 30


class Cluster:
    """A registry that waits for its servers as long as they take, and one that refuses guests soon."""

    def __init__(self, running: Registry, impatient: Registry, monitors: list[harness.Monitor]) -> None:
        self.registry = running
        self.impatient = impatient
        self.monitors = {monitor.tcp: monitor for monitor in monitors}
        self.names = list(self.monitors)

    def guest(self, **wishes: Any) -> Guest:
        return Guest(self.registry.address, self.registry.token, **wishes)

    def refused(self, **wishes: Any) -> Refused:
        """Why a guest with such wishes finds no server."""
        with pytest.raises(Refused) as caught:
            Guest(self.impatient.address, self.impatient.token, **wishes)
        return caught.value

    @property
    def identity(self) -> Identity:
        return Identity(self.registry.token)

    def wait_idle(self) -> None:
        for name in self.names:
            self.registry.wait_for(name, alive=True, sessions=0, idle=POOL)

    def is_idle(self, running: Registry) -> None:
        """And this registry knows it: from a heartbeat that was written since. One may be on its way."""
        for monitor in self.monitors.values():
            monitor.wait_idle(POOL)
        for name, server in self.registry.servers().items():
            running.wait_for(name, beats=server.load.sequence + 2, alive=True, sessions=0, idle=POOL)


def member(running: Registry, *options: str) -> contextlib.AbstractContextManager[harness.Monitor]:
    joined = ("--registry", running.control, "--cluster-key-file", running.key_file, "--http", "none")
    return harness.monitor("--pool", str(POOL), *joined, *options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(registry("--lease", "6", constants=PATIENT))
        soon, key = ("--max-wait", "0.5"), ("--cluster-key-file", running.key_file)
        impatient = stack.enter_context(registry(*soon, *key, state=running.state, constants={PROBE: 0.2}))
        monitors = [stack.enter_context(member(running)) for _ in range(3)]
        for monitor, zone in zip(monitors, "abb", strict=True):
            running.register(monitor.tcp, zone=zone)
        for monitor in monitors:
            monitor.wait_idle(POOL)
            running.wait_for(monitor.tcp, alive=True)
        yield Cluster(running, impatient, monitors)


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> None:
    cluster.wait_idle()


@pytest.mark.system
def test_guests_are_spread_over_the_servers(cluster: Cluster) -> None:
    """Also those that come faster than heartbeats."""
    cluster.is_idle(cluster.registry)
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(cluster.guest()) for _ in range(6)]
        assert Counter(guest.server for guest in guests) == dict.fromkeys(cluster.names, 2)
        for guest in guests:
            assert guest.echo(b"here") == b"here"


@pytest.mark.system
def test_guests_are_packed_if_that_is_the_policy(cluster: Cluster) -> None:
    """A second registry on the same state, with another opinion."""
    options = ("--policy", "most-packed", "--cluster-key-file", cluster.registry.key_file)
    with registry(*options, state=cluster.registry.state) as packing, contextlib.ExitStack() as stack:
        cluster.is_idle(packing)
        guests = [stack.enter_context(Guest(packing.address, packing.token)) for _ in range(POOL + 1)]
        assert sorted(Counter(guest.server for guest in guests).values()) == [1, POOL]


@pytest.mark.system
def test_labels_choose(cluster: Cluster) -> None:
    for _ in range(2):
        with cluster.guest(labels="zone=a") as guest:
            assert guest.server == cluster.names[0]
    nowhere = cluster.refused(labels="zone=a,gpu=none")
    assert nowhere.reason == Reason.NO_CAPACITY
    assert "zone=a,gpu=none" in nowhere.text
    assert cluster.refused(labels="zone").reason == Reason.BAD_REQUEST


def test_more_memory_than_any_server_has(cluster: Cluster) -> None:
    refused = cluster.refused(memory=99 * GIB)
    assert (refused.reason, refused.cuda_error) == (Reason.NO_CAPACITY, 2)


def test_a_drained_server_finishes_what_it_has(cluster: Cluster) -> None:
    address = cluster.names[0]
    monitor = cluster.monitors[address]
    with cluster.guest(labels="zone=a") as old:
        invited = redirect_of(cluster.registry.address, cluster.identity, Request("zone=a"))
        assert cluster.registry.on("Drain", address).registration.drained
        cluster.impatient.wait_for(address, drained=True)
        assert "zone=a" in cluster.refused(labels="zone=a").text
        # Whoever comes directly is sent to the registry once the drained server knows.
        monitor.wait_for_log("drained by the registry")
        with pytest.raises(Refused, match="drained"):
            Guest(address, monitor.token)
        # Who was sent before may still come.
        ticket = Identity(ticket=invited.ticket, session_key=invited.session_key)
        ask(invited.address, ticket, Request()).connection.close()
        assert old.echo(b"still here") == b"still here"
        cluster.registry.wait_for(address, sessions=1)
        with pytest.raises(CallFailed) as caught:
            cluster.registry.on("Remove", address)
        assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION
    result = cluster.registry.run("server", "drain", address, "--wait")
    assert (result.returncode, result.stderr) == (0, "")
    assert cluster.registry.on("Remove", address).registration.address == address
    assert address not in cluster.registry.servers()
    cluster.registry.register(address, zone="a")
    cluster.registry.wait_for(address, alive=True, drained=False)
    with cluster.guest(labels="zone=a") as guest:
        assert guest.server == address


def test_a_server_that_is_not_drained_stays(cluster: Cluster) -> None:
    with pytest.raises(CallFailed, match="drain"):
        cluster.registry.on("Remove", cluster.names[0])


def test_a_ticket_is_good_once(cluster: Cluster) -> None:
    redirect = redirect_of(cluster.registry.address, cluster.identity)
    identity = Identity(ticket=redirect.ticket, session_key=redirect.session_key)
    used = ask(redirect.address, identity, Request())
    used.connection.close()
    for recorded in (b"", used.sent):  # with a new proof, and byte by byte as before
        with pytest.raises(Refused) as caught:
            ask(redirect.address, identity, Request(), recorded)
        assert caught.value.reason == Reason.DENIED


def test_a_ticket_is_of_no_use_to_others(cluster: Cluster) -> None:
    redirect = redirect_of(cluster.registry.address, cluster.identity)
    good = Identity(ticket=redirect.ticket, session_key=redirect.session_key)
    elsewhere = next(name for name in cluster.names if name != redirect.address)
    forged = tickets.issue(secrets.token_bytes(32), redirect.ticket[16:32], "", time.time())
    stolen = Identity(ticket=redirect.ticket, session_key=secrets.token_bytes(32))
    for address, identity, reason in (
        (redirect.address, stolen, Reason.DENIED),
        (
            redirect.address,
            Identity(ticket=forged, session_key=tickets.session_key(b"x", forged)),
            Reason.DENIED,
        ),
        (redirect.address, Identity(ticket=bytes(136), session_key=bytes(32)), Reason.DENIED),
        (elsewhere, stolen, Reason.DENIED),
        (elsewhere, good, Reason.NO_CAPACITY),  # as at this server after a restart
    ):
        with pytest.raises(Refused) as caught:
            ask(address, identity, Request())
        assert caught.value.reason == reason
        assert ("token" in caught.value.text) == (reason == Reason.DENIED)
        if reason == Reason.NO_CAPACITY:
            assert caught.value.cuda_error == CudaError.SYSTEM_NOT_READY
    ask(redirect.address, good, Request()).connection.close()  # nobody has spoilt it


def test_the_registry_judges_guests_as_a_monitor_does(cluster: Cluster) -> None:
    address = cluster.registry.address
    with pytest.raises(Refused) as caught:
        ask(address, Identity("0" * 64), Request())
    assert caught.value.reason == Reason.DENIED
    with pytest.raises(Refused) as caught:
        ask(address, cluster.identity, Request(devices=frames.DEVICES_MAX + 1))
    assert caught.value.reason == Reason.BAD_REQUEST
    cut_off = b"\1\0\5\0abc"
    twice = 2 * (b"\2\0\3\0a=b")
    for extra in (b"\1", cut_off, b"\xff\xff\0\0", twice):
        with pytest.raises(Refused) as caught:
            ask(address, cluster.identity, Request(extra=extra))
        assert caught.value.reason == Reason.MALFORMED
    with cluster.guest() as guest:
        recorded = guest.sent
    for server in (address, guest.server):
        with pytest.raises(Refused) as caught:
            ask(server, cluster.identity, Request(), recorded)
        assert caught.value.reason == Reason.DENIED
    assert Extension.TICKET.value == 1


@pytest.mark.system
def test_a_dead_server_is_skipped_at_once(cluster: Cluster) -> None:
    """Long before its lease ends."""
    with member(cluster.registry) as doomed:
        cluster.registry.register(doomed.tcp, zone="c")
        cluster.registry.wait_for(doomed.tcp, alive=True)
        harness.wait_until(
            lambda: redirect_of(cluster.registry.address, cluster.identity, Request("zone=c")), "its turn"
        )
        doomed.process.kill()
        doomed.process.wait()
        assert cluster.registry.servers()[doomed.tcp].alive
        with contextlib.ExitStack() as stack:
            for _ in range(6):
                assert stack.enter_context(cluster.guest()).server in cluster.names
        cluster.registry.wait_for(doomed.tcp, alive=False)
    cluster.registry.on("Drain", doomed.tcp)
    cluster.registry.on("Remove", doomed.tcp)


def test_a_server_that_hangs_is_not_chosen(cluster: Cluster) -> None:
    """It still accepts connections, in its backlog; neither a greeting nor heartbeats come from it."""
    address = cluster.names[0]
    process = cluster.monitors[address].process
    cluster.impatient.wait_for(address, alive=True, drained=False)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        # Its lease goes on.
        assert "could take it (1) do not answer" in cluster.refused(labels="zone=a").text
        cluster.impatient.wait_for(address, alive=False)
        assert "do not answer" not in cluster.refused(labels="zone=a").text
    finally:
        os.kill(process.pid, signal.SIGCONT)
    cluster.registry.wait_for(address, alive=True)


def test_calls_are_signed(cluster: Cluster) -> None:
    """What somebody else signed, or what was used, changes nothing; nor does it after a restart."""
    request = registry_pb2.ServerRequest(address=cluster.names[0])
    raw, path = request.SerializeToString(), path_of("Drain")
    where, caller = cluster.registry.control, Caller(cluster.registry.key)
    with grpc.insecure_channel(where) as channel:
        with pytest.raises(CallFailed, match="does not accept this cluster key") as caught:
            list(answers(channel, Caller(b"0" * 64), where, "Drain", request, 60))
        assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
        list(answers(channel, caller, where, "Undrain", request, 60))
        used = caller.begin(where, path).metadata(raw)
        drain = channel.unary_unary(path, None, None)
        drain(raw, timeout=60, metadata=used)
        cluster.registry.on("Undrain", cluster.names[0])
        for metadata in (used, None, (("authorization", "gpuferry-2 x y z"),)):
            with pytest.raises(grpc.RpcError) as refused:
                drain(raw, timeout=60, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    cluster.registry.kill()
    cluster.registry.start()
    with (
        grpc.insecure_channel(cluster.registry.control) as channel,
        pytest.raises(grpc.RpcError, match="wrong cluster key"),
    ):
        channel.unary_unary(path, None, None)(raw, timeout=60, metadata=used)
    assert not cluster.registry.servers()[cluster.names[0]].registration.drained
    cluster.registry.wait_for(cluster.names[0], alive=True, drained=False)


def test_only_registered_servers_take_part(cluster: Cluster) -> None:
    with member(cluster.registry) as stranger:
        stranger.wait_for_log("no registry accepts")
        stranger.wait_for_log("is registered")
        assert stranger.tcp not in cluster.registry.servers()


def test_a_registry_that_was_killed_comes_back_with_everything(cluster: Cluster) -> None:
    before = {name: server.registration for name, server in cluster.registry.servers().items()}
    with cluster.guest() as guest:
        cluster.registry.kill()
        assert guest.echo(b"its business") == b"its business"
        cluster.registry.start()
        after = {name: server.registration for name, server in cluster.registry.servers().items()}
        assert after == before
    cluster.wait_idle()
    with pytest.raises(Redirect):
        ask(cluster.registry.address, cluster.identity, Request())
