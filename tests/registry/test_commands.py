"""`gpuferry server …` and `gpuferry run` where the registry runs, as somebody new to it types them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.cli.cluster import Cluster
from gpuferry.monitor.settings.errors import ConfigError

from tests.registry.running import Registry, registry


@pytest.fixture(scope="module")
def running() -> Iterator[Registry]:
    with registry() as running:
        yield running


def listed(running: Registry) -> dict[str, str]:
    report = json.loads(running.run("server", "list", "--json").stdout)
    assert report["schema"] == "gpuferry.servers/1"
    return {server["address"]: server["state"] for server in report["servers"]}


def test_the_life_of_a_server(running: Registry) -> None:
    address = "gpu-a:7770"
    assert listed(running) == {}
    done = running.run("server", "register", address, "--label", "zone=a")
    assert done.returncode == 0
    assert f"gpuferry monitor --registry {running.control} --advertise {address}" in done.stderr
    assert listed(running) == {address: "silent"}
    assert running.run("server", "list", "-q").stdout == f"{address}\n"
    shown = json.loads(running.run("server", "show", address, "--json").stdout)
    assert shown["labels"] == {"zone": "a"}
    early = running.run("server", "remove", address, "--yes")
    assert early.returncode == 1
    assert f"gpuferry server drain {address}" in early.stderr
    assert running.run("server", "drain", address, "--wait").returncode == 0
    assert listed(running) == {address: "drained"}
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


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was another machine, which wanted a certificate."""
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", secrets.token_hex(32))
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="'registry' is neither HOST:PORT"):
        Cluster("registry", None, 1.0)
