"""Registry, monitor and CLI over TLS: each shows the others a certificate of the same authority."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.service import authority

from tests.helpers import page
from tests.helpers.certificates import Certificates
from tests.helpers.warm import MODULE
from tests.monitor import harness
from tests.registry.running import Registry, registry

NAMELESS: dict[str, str | None] = {f"GPUFERRY_TLS_{name}": None for name in ("CERT", "KEY", "CA")}


@pytest.fixture(scope="module")
def files(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of the same authority; what is here may be replaced."""
    folder = tmp_path_factory.mktemp("control") / "tls"
    shutil.copytree(certificates.folder, folder)
    return Certificates(folder)


@pytest.fixture(scope="module")
def secure(files: Certificates) -> Iterator[Registry]:
    with registry(*files.flags()) as running:
        yield running


@pytest.fixture(scope="module")
def monitor(files: Certificates, secure: Registry) -> Iterator[harness.Monitor]:
    """Executed, not forked from a Python that imported gRPC before: its settings are in the environment."""
    joined = ("--registry", secure.control, "--cluster-key-file", secure.key_file)
    executed = [sys.executable, "-u", "-m", MODULE]
    arguments = ("--pool", "1", "--control", "127.0.0.1:0", "--http", "127.0.0.1:0", *files.flags(), *joined)
    with harness.monitor(*arguments, cli=executed) as running:
        yield running


def connect(address: str, context: ssl.SSLContext) -> str | None:
    """The version of TLS that is spoken there, once gRPC's server has spoken."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), harness.DEADLINE) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        if not secured.recv(1):
            raise ConnectionError("it hung up")
        return secured.version()


def test_the_commands_of_who_has_a_certificate(
    files: Certificates, secure: Registry, monitor: harness.Monitor
) -> None:
    """From another machine, as far as files go; and of the daemons' own user, who names nothing."""
    assert secure.control.startswith("tls://")
    assert monitor.control.startswith("tls://")
    name = monitor.tcp.removeprefix("tls://")
    assert secure.run("server", "register", name).returncode == 0
    secure.wait_for(name, alive=True)
    away = {"GPUFERRY_REGISTRY": secure.control, "GPUFERRY_CLUSTER_KEY_FILE": secure.key_file}
    listed = harness.gpuferry(
        monitor.runtime + "-away", "server", "list", "--json", **away, **files.variables()
    )
    (server,) = json.loads(listed.stdout)["servers"]
    assert (server["address"], server["alive"]) == (name, True)
    status = harness.gpuferry(
        monitor.runtime + "-away",
        "status",
        "--json",
        GPUFERRY_CONTROL=monitor.control,
        GPUFERRY_TOKEN=monitor.token,
        **files.variables(),
    )
    assert json.loads(status.stdout)["devices"], status.stderr
    assert monitor.run("status").returncode == 0


def test_the_page(files: Certificates, monitor: harness.Monitor) -> None:
    printed = monitor.run("page").stdout.strip()
    assert printed.startswith("https://127.0.0.1:")
    address, _, key = printed.partition("/#")
    request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {key}"})
    trusting = ssl.create_default_context(cafile=str(files.authority))
    with urllib.request.urlopen(request, timeout=harness.DEADLINE, context=trusting) as answer:
        assert b"gpuferry_build_info" in answer.read()


def test_who_has_none_is_told(files: Certificates, secure: Registry, monitor: harness.Monitor) -> None:
    runtime = monitor.runtime + "-away"
    away: dict[str, str | None] = {
        "GPUFERRY_REGISTRY": secure.control,
        "GPUFERRY_CLUSTER_KEY_FILE": secure.key_file,
        **NAMELESS,
    }
    without = harness.gpuferry(runtime, "server", "list", **away)
    assert without.returncode == 1
    assert "GPUFERRY_TLS_CERT" in without.stderr
    for clear in (secure.control.removeprefix("tls://"), "10.255.255.1:7701"):
        refused = harness.gpuferry(
            runtime, "server", "list", "--timeout", "3", **away | {"GPUFERRY_REGISTRY": clear}
        )
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr
        assert "tls://" in refused.stderr
    assert "in the clear" in refused.stderr


def test_why_a_certificate_does_not_do(files: Certificates, secure: Registry, tmp_path: Path) -> None:
    """Of another authority; for another name; or none at all."""
    authority.make_authority(tmp_path)
    authority.issue(tmp_path, "client", [], client=True)
    authority.issue(files.folder, "elsewhere", ["elsewhere.example"])

    def listing(address: str, given: Certificates) -> str:
        settings = {"GPUFERRY_REGISTRY": address, "GPUFERRY_CLUSTER_KEY_FILE": secure.key_file}
        done = harness.gpuferry(str(tmp_path / "run"), "server", "list", **settings, **given.variables())
        assert done.returncode == 5, done.stderr
        return done.stderr

    assert "GPUFERRY_TLS_CA" in listing(secure.control, Certificates(tmp_path))
    with registry(*files.flags("elsewhere")) as elsewhere:
        assert "for another name" in listing(elsewhere.control, files)
    with registry() as clear:
        assert "does not speak TLS" in listing(f"tls://{clear.control}", files)


@pytest.mark.parametrize("of", ["registry", "monitor"])
def test_what_is_let_in(
    files: Certificates, secure: Registry, monitor: harness.Monitor, tmp_path: Path, of: str
) -> None:
    """TLS 1.3 with a certificate of the authority, and nothing else."""
    address = secure.control if of == "registry" else monitor.control

    def trusting(folder: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(files.authority))
        if folder:
            context.load_cert_chain(folder / "client.crt", folder / "client.key")
        return context

    assert connect(address, trusting(files.folder)) == "TLSv1.3"
    old = trusting(files.folder)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    authority.make_authority(tmp_path)
    authority.issue(tmp_path, "client", [], client=True)
    for context in (trusting(None), trusting(tmp_path), old):
        with pytest.raises(OSError):  # noqa: PT011
            connect(address, context)


def test_new_certificates_need_no_restart(
    files: Certificates, secure: Registry, monitor: harness.Monitor
) -> None:
    name = monitor.tcp.removeprefix("tls://")
    secure.register(name)
    secure.wait_for(name, alive=True)
    authority.issue(files.folder, "server", ["localhost", "127.0.0.1"], days=3, replace=True)
    serial = ssl.PEM_cert_to_DER_cert((files.folder / "server.crt").read_text())
    context = files.identity("client").client_context()
    pages = page.published(monitor.runtime)["GPUFERRY_HTTP"]
    for address in (secure.control, monitor.control, pages):
        host, _, port = address.rpartition("//")[2].rpartition(":")
        with (
            socket.create_connection((host, int(port)), harness.DEADLINE) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            assert secured.getpeercert(binary_form=True) == serial
    secure.wait_for(name, beats=secure.servers()[name].load.sequence + 2, alive=True)
