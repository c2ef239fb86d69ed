"""`gpuferry tls …`, as somebody types it who has no authority yet."""

from __future__ import annotations

import datetime
import errno
import json
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from gpuferry.monitor.cli import main
from gpuferry.monitor.service.authority import describe
from gpuferry.monitor.service.tls import Identity, read_certificates


def gpuferry(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpuferry", "tls", *arguments])
    return main.main()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(tmp_path / "state"))
    assert gpuferry(monkeypatch, "init") == 0
    return tmp_path / "state" / "tls"


def test_three_commands_make_an_identity(
    authority: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpuferry(monkeypatch, "issue", "gpu-a.example", "--host", "10.0.0.5", "--host", "gpu-a") == 0
    flags = capsys.readouterr().out.splitlines()[-1].split()
    given = dict(zip(flags[2::2], flags[3::2], strict=True))
    Identity(Path(given["--tls-cert"]), Path(given["--tls-key"]), Path(given["--tls-ca"]))
    assert gpuferry(monkeypatch, "issue", "alice", "--client", "--days", "7") == 0
    variables = dict(line.split("=") for line in capsys.readouterr().out.splitlines())
    Identity(*(Path(variables[f"GPUFERRY_TLS_{name}"]) for name in ("CERT", "KEY", "CA")))
    for file in authority.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == (0o600 if file.suffix == ".key" else 0o644)
    for folder in (authority, authority.parent):  # the state folder, too: doctor would complain
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    assert gpuferry(monkeypatch, "show", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "gpuferry.tls/1"
    found = {one["name"]: one for one in report["certificates"]}
    assert found["gpuferry authority"]["purpose"] == "authority"
    assert found["alice"]["purpose"] == "client"
    assert found["alice"]["days"] == 6
    assert found["gpu-a.example"]["purpose"] == "server"
    assert set(found["gpu-a.example"]["hosts"]) >= {"gpu-a.example", "10.0.0.5", "gpu-a", "127.0.0.1"}
    assert gpuferry(monkeypatch, "show") == 0
    assert "gpu-a.example" in capsys.readouterr().out


def test_no_key_is_left_where_it_cannot_be_written(
    authority: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a file system without links."""

    def without(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    before = sorted(authority.iterdir())
    monkeypatch.setattr(os, "link", without)
    assert gpuferry(monkeypatch, "issue", "gpu-a") == 1
    assert "cannot write" in capsys.readouterr().err
    assert sorted(authority.iterdir()) == before


@pytest.mark.parametrize("again", [(), ("--replace",)])
def test_a_full_disk_leaves_what_was_there(
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    again: tuple[str, ...],
) -> None:
    """The next key was there, without its certificate: what used them did not start any more."""
    if again:
        assert gpuferry(monkeypatch, "issue", "gpu-a") == 0
    before = {file.name: file.read_bytes() for file in authority.iterdir()}
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=[None, full]))
    assert gpuferry(monkeypatch, "issue", "gpu-a", *again) == 1
    assert "No space left on device" in " ".join(capsys.readouterr().err.split())
    assert {file.name: file.read_bytes() for file in authority.iterdir()} == before


def test_nothing_is_overwritten_unasked(
    authority: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpuferry(monkeypatch, "issue", "gpu-a") == 0
    before = {file.name: file.read_bytes() for file in authority.iterdir()}
    assert gpuferry(monkeypatch, "init") == 1
    assert "--replace" not in capsys.readouterr().err, "it has no such option"
    assert gpuferry(monkeypatch, "issue", "gpu-a") == 1
    assert "is there already" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in authority.iterdir()} == before
    assert gpuferry(monkeypatch, "issue", "gpu-a", "--replace") == 0
    after = {file.name: file.read_bytes() for file in authority.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"gpu-a.crt", "gpu-a.key"}


@pytest.mark.parametrize(
    ("options", "purpose", "hosts"),
    [
        (("--host", "10.0.0.5"), "server", {"10.0.0.5", "localhost"}),
        (("--client",), "client", set()),
    ],
)
def test_the_next_one_is_for_the_same_use(
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    purpose: str,
    hosts: set[str],
) -> None:
    assert gpuferry(monkeypatch, "issue", "gpu-a", *options) == 0
    first = capsys.readouterr().out
    assert gpuferry(monkeypatch, "issue", "gpu-a", "--replace") == 0
    assert capsys.readouterr().out == first
    said = describe(read_certificates(authority / "gpu-a.crt")[0])
    assert said.purpose == purpose
    assert hosts <= set(said.hosts)
    assert gpuferry(monkeypatch, "issue", "gpu-a", "--replace", "--host", "gpu-b") == 0
    said = describe(read_certificates(authority / "gpu-a.crt")[0])
    assert (said.purpose, "gpu-b" in said.hosts, "10.0.0.5" in said.hosts) == ("server", True, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("issue", "../gpu-a"), "no name for a certificate"),
        (("issue", "ca"), "no name for a certificate"),
        (("issue", "gpu-a", "--host", "gpu-a:7700"), "neither a name nor an address"),
        (("issue", "gpu-a", "--folder", "/nowhere"), "tls init"),
        (("show", "--folder", "/nowhere"), "tls init"),
    ],
)
def test_what_cannot_be_issued(
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    assert gpuferry(monkeypatch, *arguments) != 0
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_certificate_whose_extensions_are_broken_is_named(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of others may be in the same folder; which one it was nobody learned, of doctor neither."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    now = datetime.datetime.now(datetime.timezone.utc)
    odd = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x03\xff\xff")
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(odd, critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "odd.crt"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    assert gpuferry(monkeypatch, "show", str(authority / "ca.crt"), str(file)) != 0
    said = capsys.readouterr().err
    assert f"{file}: what the certificate says cannot be read" in " ".join(said.split())
    assert "gpuferry tls issue" in said


def test_the_key_of_another_authority_issues_nothing(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody would have believed the certificates."""
    assert gpuferry(monkeypatch, "init", str(tmp_path / "other")) == 0
    (authority / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    assert gpuferry(monkeypatch, "issue", "node") != 0
    assert "this is not the key of" in " ".join(capsys.readouterr().err.split())
    assert not (authority / "node.crt").exists()
