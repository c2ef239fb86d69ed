"""Certificates whose time is nearly over, for the wrong name or use: doctor and a daemon's log say so."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog
from gpuferry.guest.endpoint import Endpoint
from gpuferry.monitor.cli import reach
from gpuferry.monitor.cli.checks.certificates import certificates as checks
from gpuferry.monitor.cli.checks.certificates import covers
from gpuferry.monitor.cli.errors import CliError
from gpuferry.monitor.cli.identity import identity_for
from gpuferry.monitor.cluster.registry.config import RegistryOptions
from gpuferry.monitor.functions.config import FunctionsOptions
from gpuferry.monitor.service import authority, expiry, tls
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor_options import MonitorOptions

from tests.helpers.certificates import Certificates

DAY = datetime.timedelta(days=1)


@pytest.fixture
def short(tmp_path: Path) -> Certificates:
    """A certificate of 30 days, of an authority of 40."""
    authority.make_authority(tmp_path, 40)
    authority.issue(tmp_path, "server", ["gpu-a.example", "10.0.0.5"], days=30)
    return Certificates(tmp_path)


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = datetime.datetime.now(datetime.timezone.utc) + days * DAY
    for module in (authority, tls):
        monkeypatch.setattr(module, "_now", lambda: now)


def files(found: Certificates, name: str = "server") -> dict[str, Any]:
    paths = {"cert": f"{name}.crt", "key": f"{name}.key", "ca": "ca.crt"}
    return {f"tls_{what}": str(found.folder / file) for what, file in paths.items()}


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (0, []),
        (25, [("warning", "the certificate ends soon")]),
        (28, [("warning", "the certificate ends soon"), ("warning", "the authority ends soon")]),
        (31, [("error", "the certificate has ended"), ("warning", "the authority ends soon")]),
        (41, [("error", "the certificate has ended"), ("error", "the authority has ended")]),
    ],
)
def test_a_daemon_says_that_its_certificate_ends(
    short: Certificates, monkeypatch: pytest.MonkeyPatch, days: float, said: list[tuple[str, str]]
) -> None:
    identity = short.identity()
    later(monkeypatch, days)
    with structlog.testing.capture_logs() as lines:
        expiry.look(identity)
    assert [(line["log_level"], line["event"].partition(":")[0]) for line in lines] == said


def test_what_has_ended_has_a_next_step(short: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, 41)
    with pytest.raises(ConfigError, match=r"server.crt: it ended on") as caught:
        short.identity()
    assert "tls issue NAME" in caught.value.hint
    assert "clock" in caught.value.hint


def test_doctor_says_what_ends_and_what_to_do(short: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, 28)
    certificate, issuer = checks("monitor", MonitorOptions(**files(short)))
    assert (certificate.result, issuer.result) == ("note", "note")
    assert "tls issue NAME --replace" in certificate.next_step
    assert "tls init" in issuer.next_step
    later(monkeypatch, 31)
    (ended,) = checks("monitor", MonitorOptions(**files(short)))
    assert (ended.result, "it ended on" in ended.detail) == ("failed", True)


@pytest.mark.parametrize(
    ("settings", "result", "words"),
    [
        ({"advertise": "gpu-b.example:7700"}, "failed", "guests are told to come to gpu-b.example:7700"),
        ({"listen": "10.0.0.6:7700"}, "note", "--listen 10.0.0.6:7700"),
        ({"control": "gpu-b:7701"}, "note", "--control gpu-b:7701"),
        ({"http": "[fd00::1]:80"}, "note", "--http [fd00::1]:80"),
        ({"listen": "10.0.0.5:7700", "advertise": "GPU-A.example:1", "http": "auto"}, "ok", ""),
        ({"listen": "0.0.0.0:7700", "control": "unix:/x", "http": "[::]:1"}, "ok", ""),
    ],
)
def test_doctor_compares_names(
    short: Certificates, settings: dict[str, Any], result: str, words: str
) -> None:
    found = list(checks("monitor", MonitorOptions(**files(short), **settings)))[2:]
    assert [(check.result, words in check.detail) for check in found] == [(result, True)] * (result != "ok")
    assert all("--host" in check.next_step for check in found)


def test_the_monitors_address_is_no_function_servers(short: Certificates) -> None:
    assert len([*checks("functions", FunctionsOptions(**files(short), control="gpu-b:7701"))]) == 2
    assert len([*checks("registry", RegistryOptions(**files(short), control="gpu-b:7701"))]) == 3


def test_doctor_says_what_a_certificate_is_not_good_for(short: Certificates) -> None:
    authority.issue(short.folder, "alice", [], client=True)
    (found,) = [
        check for check in checks("monitor", MonitorOptions(**files(short, "alice"))) if check.result != "ok"
    ]
    assert (found.result, "it is for a client" in found.detail) == ("failed", True)


def test_doctor_says_who_could_replace_an_authority(short: Certificates) -> None:
    assert len([*checks("monitor", MonitorOptions(**files(short)))]) == 2
    short.authority.chmod(0o666)
    found = [*checks("monitor", MonitorOptions(**files(short)))][2]
    assert f"{short.authority}: anybody can write there" in found.detail


@pytest.mark.parametrize(
    ("hosts", "host", "does"),
    [
        (("gpu-a.example",), "gpu-a.example", True),
        (("gpu-a.example",), "GPU-A.Example.", True),
        (("*.example",), "gpu-a.example", True),
        (("*.example",), "a.gpu.example", False),
        (("*.example",), "example", False),
        (("gpu-a",), "gpu-a.example", False),
        (("10.0.0.5",), "10.0.0.5", True),
        (("fd00::1",), "fd00:0::1", True),
        (("*.0.0.5",), "10.0.0.5", False),
        ((), "gpu-a", False),
    ],
)
def test_which_names_a_certificate_covers(hosts: tuple[str, ...], host: str, does: bool) -> None:
    assert covers(hosts, host) is does


def test_commands_by_a_unix_socket_need_no_certificate(
    short: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has to look after a server whose certificate has ended was kept out by that, there too."""
    later(monkeypatch, 31)
    published = short.variables("server")
    assert identity_for(["unix:/run/control.sock"], published) is None
    with pytest.raises(ConfigError, match="it ended on"):
        identity_for(["unix:/run/control.sock", "tls://gpu-a.example:7701"], published)


@pytest.mark.parametrize(("days", "words"), [(-100, "has expired"), (31, "not yet valid")])
def test_commands_say_that_a_servers_certificate_is_out_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, words: str
) -> None:
    later(monkeypatch, days)
    server = Certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.folder / "server.crt", server.folder / "server.key")
    monkeypatch.setenv("GPUFERRY_TLS_CA", str(server.authority))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"tls://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(CliError) as caught:
            reach.greet(Endpoint(address, "command line", "token"))
        thread.join()
    assert words in str(caught.value)
    assert "a clock is wrong" in str(caught.value)
