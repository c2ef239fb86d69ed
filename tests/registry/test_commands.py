"""`gpuferry server …` and `gpuferry run` where the registry runs, as somebody new to it types them."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuferry.guest.endpoint import published
from gpuferry.monitor.cli import server as commands
from gpuferry.monitor.cli.cluster import Cluster
from gpuferry.monitor.cli.errors import CliError, Exit
from gpuferry.monitor.cluster.registry import daemon
from gpuferry.monitor.cluster.registry.config import RegistryConfig
from gpuferry.monitor.service.runtime import RuntimeDirectory, from_here
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.specs._generated import registry_pb2

from tests.registry.running import Registry, registry


@pytest.fixture(scope="module")
def running() -> Iterator[Registry]:
    with registry() as running:
        yield running


def listed(running: Registry) -> dict[str, str]:
    report = json.loads(running.run("server", "list", "--json").stdout)
    assert report["schema"] == "gpuferry.servers/1"
    return {server["address"]: server["state"] for server in report["servers"]}


@pytest.mark.system
def test_the_life_of_a_server(running: Registry) -> None:
    address = "gpu-a:7770"
    assert listed(running) == {}
    done = running.run("server", "register", address, "--label", "zone=a")
    assert done.returncode == 0
    there = f"{socket.gethostname()}:{running.control.rpartition(':')[2]}"
    assert f"gpuferry monitor --registry {there} --advertise {address}" in done.stderr
    assert listed(running) == {address: "silent"}
    assert running.run("server", "list", "-q").stdout == f"{address}\n"
    shown = json.loads(running.run("server", "show", address, "--json").stdout)
    assert shown["labels"] == {"zone": "a"}
    early = running.run("server", "remove", address, "--yes")
    assert early.returncode == 1
    assert f"gpuferry server drain {address}" in early.stderr
    assert running.run("server", "drain", address).returncode == 0
    assert listed(running) == {address: "silent"}
    assert "silent, drained" in running.run("server", "list").stdout
    assert running.run("server", "undrain", address).returncode == 0
    assert listed(running) == {address: "silent"}
    assert running.run("server", "register", address, "--label", "zone=b").returncode == 0
    assert "zone=b" in running.run("server", "show", address).stdout
    running.run("server", "drain", address)
    unasked = running.run("server", "remove", address)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert running.run("server", "remove", address, "--yes").returncode == 0
    assert listed(running) == {}
    gone = running.run("server", "show", address)
    assert (gone.returncode, address in gone.stderr) == (3, True)


def drained(sequence: int, sessions: int = 0) -> registry_pb2.Server:
    """What the registry says of a drained server whose heartbeat with this number was its last."""
    return registry_pb2.Server(
        registration=registry_pb2.Registration(address="gpu-a:7700", drained=True),
        load=registry_pb2.Load(incarnation=bytes(16), sequence=sequence, sessions=sessions),
        alive=True,
    )


def draining(monkeypatch: pytest.MonkeyPatch, said: Iterator[registry_pb2.Server], timeout: float) -> None:
    """`gpuferry server drain --wait`, to which the registry says this."""

    class Said:
        def __init__(self, *_: Any) -> None:
            pass

        def call(self, *_: Any) -> registry_pb2.Server:
            return next(said)

    monkeypatch.setattr("gpuferry.monitor.cli.cluster.Cluster", Said)
    monkeypatch.setattr("time.sleep", lambda _: None)
    commands.drain("gpu-a:7700", wait=True, timeout=timeout)


def test_draining_waits_for_guests_that_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last heartbeat does not tell of who was sent there since."""
    said = iter([drained(7), drained(7), drained(8, sessions=1), drained(9, sessions=1), drained(10)])
    draining(monkeypatch, said, 60.0)
    assert next(said, None) is None


@pytest.mark.parametrize(
    ("sessions", "why"), [(2, "gpu-a:7700 still has 2 sessions"), (0, "guests may yet come to gpu-a:7700")]
)
def test_what_a_server_is_not_drained_of(monkeypatch: pytest.MonkeyPatch, sessions: int, why: str) -> None:
    with pytest.raises(CliError, match=why):
        draining(monkeypatch, itertools.repeat(drained(7, sessions)), 0.0)


def test_of_a_silent_server_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to be drained, and `--wait` succeeded, whatever it had when it was last heard."""
    silent = drained(8)
    silent.alive = False
    assert commands._plain(silent)["state"] == "silent"
    with pytest.raises(CliError, match="gpu-a:7700 is silent"):
        draining(monkeypatch, itertools.chain([drained(7)], itertools.repeat(silent)), 0.01)
    draining(monkeypatch, iter([drained(7), silent, drained(9)]), 60.0)


def test_who_watches_servers_asks_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A registry that hangs showed for ever what once was. What has not changed is not said again."""
    said = [drained(7), drained(8), drained(8, sessions=1)]

    class Registry:
        def __init__(self, registry: str | None, key: str | None, timeout: float) -> None:
            assert timeout == 7.0

        def call(self, *_: Any) -> registry_pb2.ListReply:
            if not said:
                raise CliError(Exit.UNREACHABLE, "no answer in time")
            return registry_pb2.ListReply(servers=[said.pop(0)])

    monkeypatch.setattr("gpuferry.monitor.cli.cluster.Cluster", Registry)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(CliError, match="no answer in time"):
        commands.list_servers(watch=True, as_json=True, timeout=7.0)
    assert [line.count("drained") for line in capsys.readouterr().out.splitlines()] == [2, 1]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "address",
    [
        *("gpu-a", "gpu a:7770", "gpu-a:0", "gpu-a:65536", ":7770", "gpu\n:7770", "unix:"),
        *("x" * 256 + ":1", "gpu..a:7770", "x" * 64 + ":7770"),
    ],
)
def test_what_no_guest_could_connect_to_is_refused(running: Registry, address: str) -> None:
    done = running.run("server", "register", address)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert listed(running) == {}


def test_a_monitor_is_told_an_address_of_the_registry_that_is_one_where_it_runs() -> None:
    """Commands find a registry that listens everywhere at 127.0.0.1, which elsewhere is another machine."""
    here = socket.gethostname()
    ours = "tls://127.0.0.1:7701"
    assert commands._seen_from("gpu-a:7700", ours) == f"tls://{here}:7701"
    assert commands._seen_from("gpu-a:7700", "localhost:1,b:2") == f"{here}:1,b:2"
    assert commands._seen_from("127.0.0.1:7700", ours) == ours
    assert commands._seen_from("gpu-a:7700", "unix:/run/it") == "unix:/run/it"


def test_a_guest_on_this_machine_needs_no_setting(running: Registry) -> None:
    """As with a monitor's: the token goes to the address that was published beside it, and to no other."""
    for named in (None, running.address):
        done = running.run("env", "--json", GPUFERRY_MONITOR=named)
        settings = json.loads(done.stdout)
        assert settings["GPUFERRY_MONITOR"] == running.address
        assert settings["GPUFERRY_TOKEN"] == running.token
    elsewhere = running.run("env", "--json", GPUFERRY_MONITOR="127.0.0.1:9")
    assert elsewhere.returncode == 6
    assert running.token not in elsewhere.stdout + elsewhere.stderr


def test_replicas_with_blanks_between_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a monitor takes them: with a blank before it, one with TLS was taken for one in the clear."""
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", secrets.token_hex(32))
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    cluster = Cluster("127.0.0.1:7701, localhost:7702 ", None, 1.0)
    assert cluster.where == "127.0.0.1:7701,localhost:7702"


def test_a_second_registry_is_told_of_the_first(tmp_path: Path) -> None:
    """It was told of a monitor, which there was not, and to look at `gpuferry status`."""
    config = RegistryConfig(
        runtime=tmp_path / "registry", token=bytes(32), cluster_key=bytes(32), cluster_key_path=""
    )
    first = RuntimeDirectory(config.runtime)
    with pytest.raises(ConfigError, match=r"a registry already runs here .* see `gpuferry server list`"):
        asyncio.run(daemon.Registry(config, True).run())
    first.close()


def test_one_that_listens_everywhere_is_published_by_an_address_that_its_certificate_may_have(
    tmp_path: Path,
) -> None:
    """Commands on its own machine were told that its certificate is for another address."""
    folder = tmp_path / "registry"
    config = RegistryConfig(runtime=folder, token=bytes(32), cluster_key=bytes(32), cluster_key_path="")
    runtime = RuntimeDirectory(folder)
    daemon.Registry(config, True)._publish(runtime, "tls://0.0.0.0:7700", "tls://[::]:7701")
    found = published(str(folder))
    runtime.close()
    assert found["GPUFERRY_MONITOR"] == "tls://127.0.0.1:7700"
    assert found["GPUFERRY_REGISTRY"] == "tls://[::1]:7701"


@pytest.mark.parametrize("address", ["10.0.0.5:7700", "tls://gpu-a:7700", "unix:/run/a:b/session.sock"])
def test_any_other_address_is_published_as_it_is(address: str) -> None:
    assert from_here(address) == address


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was another machine, which wanted a certificate."""
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", secrets.token_hex(32))
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="'registry' is neither HOST:PORT"):
        Cluster("registry", None, 1.0)
