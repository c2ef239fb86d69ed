"""Which GPU server the processes of one program are sent to: the one that has its lease."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from gpuferry.monitor.cluster.registry.client import CallFailed
from gpuferry.monitor.cluster.registry.programs import Programs
from gpuferry.monitor.door.handshake import Extension, program_digest
from gpuferry.specs._generated import registry_pb2

from tests.registry.guest import Identity, Request, extension, redirect_of
from tests.registry.running import PATIENT, Registry, registry
from tests.registry.test_pending import Server

WORD = secrets.token_bytes(32)


@pytest.fixture
def running() -> Iterator[Registry]:
    with registry("--lease", "600", constants=PATIENT) as started:
        yield started


@pytest.fixture
def servers(running: Registry) -> Iterator[tuple[Server, Server]]:
    both = sorted((Server(running), Server(running)), key=lambda server: server.address)
    yield both[0], both[1]
    for server in both:
        server.close()


def sent(running: Registry, word: bytes = WORD, tenant: str = "", **wishes: int) -> str:
    request = Request(extra=extension(Extension.PROGRAM, word), **wishes)  # type: ignore[arg-type]
    return redirect_of(running.address, Identity(running.token, tenant), request).address


def lease(*devices: int) -> registry_pb2.Program:
    return registry_pb2.Program(id=program_digest(WORD, "", True)[:16], devices=devices, sessions=1)


def test_processes_of_a_program_go_to_one_server(running: Registry, servers: tuple[Server, Server]) -> None:
    """Before a heartbeat tells of the first one, and after."""
    one, other = servers
    assert [sent(running) for _ in range(3)] == [one.address] * 3
    assert sent(running, secrets.token_bytes(32)) == other.address
    assert sent(running, WORD, tenant="acme") == other.address  # for another tenant it is another program
    other.beat(programs=[lease(0)])
    one.beat()
    one.beat()
    assert sent(running) == other.address


def test_a_program_stays_together_on_a_server_that_is_drained_or_too_small(
    running: Registry, servers: tuple[Server, Server]
) -> None:
    """What its first process has is enough for all of them: more is not granted."""
    one, _ = servers
    one.beat(programs=[lease(0)])
    assert sent(running, memory=1 << 40) == one.address
    running.on("Drain", one.address)
    running.wait_for(one.address, drained=True)
    assert sent(running) == one.address
    assert sent(running, secrets.token_bytes(32)) != one.address


def heard(address: str, *programs: registry_pb2.Program, alive: bool = True) -> registry_pb2.Server:
    return registry_pb2.Server(
        registration=registry_pb2.Registration(address=address),
        alive=alive,
        load=registry_pb2.Load(programs=programs),
    )


@pytest.mark.parametrize("order", [1, -1])
def test_a_program_that_moved_is_where_its_memory_is(order: int) -> None:
    """The server that it left tells of it until its processes have followed."""
    servers = [heard("a", lease()), heard("b", lease(0))][::order]
    assert Programs(servers).home(program_digest(WORD, "", True)) == "b"
    assert Programs([heard("a", lease(0), alive=False)]).home(program_digest(WORD, "", True)) is None
    assert Programs(servers).home(b"") is None


def test_what_a_heartbeat_says_of_programs_is_bounded(
    running: Registry, servers: tuple[Server, Server]
) -> None:
    one, _ = servers
    for programs in ([registry_pb2.Program()] * 4097, [registry_pb2.Program(id=b"short")]):
        with pytest.raises(CallFailed, match="program"):
            one.beat(programs=programs)


def test_what_a_guest_called_its_function_keeps_no_server_from_being_heard(
    running: Registry, servers: tuple[Server, Server]
) -> None:
    """The server's Python may know letters that the registry's does not."""
    one, _ = servers
    one.beat(programs=[registry_pb2.Program(tenant="acme", function="\x1b[2J", sessions=1)])
    (told,) = running.on("Show", one.address).load.programs
    assert (told.tenant, told.function, told.sessions) == ("acme", "", 1)
