"""An identity: which files make one, what it lets in, and when it is read anew."""

from __future__ import annotations

import datetime
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from gpuferry.monitor.service import authority, tls
from gpuferry.monitor.service.tls import identity_of
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor_options import MonitorOptions

from tests.helpers.certificates import Certificates


@pytest.fixture
def own(certificates: Certificates, tmp_path: Path) -> Certificates:
    """A copy, to be spoilt."""
    shutil.copytree(certificates.folder, tmp_path / "tls")
    return Certificates(tmp_path / "tls")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    """The client's end of a connection, through which `hello` has come."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as secured:
                secured.sendall(b"hello")
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        secured = client.wrap_socket(ours, server_hostname=name)
        assert secured.recv(5) == b"hello"
        return secured
    finally:
        thread.join()
        ours.close()


def test_a_connection_is_tls_1_3_and_leaves_no_ticket(certificates: Certificates) -> None:
    identity = certificates.identity()
    with shake_hands(identity.server_context(), certificates.identity("client").client_context()) as secured:
        assert secured.version() == "TLSv1.3"
        assert secured.session is None or not secured.session.has_ticket


def test_an_older_tls_is_refused(certificates: Certificates) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(certificates.authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, OSError)):
        shake_hands(certificates.identity().server_context(), old)


def test_a_client_believes_neither_another_name_nor_another_authority(
    certificates: Certificates, tmp_path: Path
) -> None:
    authority.make_authority(tmp_path)
    authority.issue(tmp_path, "server", ["localhost"])
    ours, stranger = certificates.identity(), Certificates(tmp_path).identity()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(ours.server_context(), ours.client_context(), "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(stranger.server_context(), ours.client_context())


def test_who_only_calls_cannot_pose_as_a_server(certificates: Certificates) -> None:
    client = certificates.identity("client")
    anyone = client.client_context()
    anyone.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(client.server_context(), anyone)


@pytest.fixture(scope="module")
def control(certificates: Certificates) -> Iterator[int]:
    """The port of a gRPC server."""
    server = grpc.server(ThreadPoolExecutor(1))
    port: int = server.add_secure_port("127.0.0.1:0", certificates.identity().server_credentials())
    server.start()
    yield port
    server.stop(None).wait()


def _speaks(port: int, context: ssl.SSLContext) -> str | None:
    """The version that was agreed on, once the server has spoken: TLS 1.3 may refuse a client late."""
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 60) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        if not secured.recv(1):
            raise ConnectionError("the server hung up")
        return secured.version()


def test_grpc_wants_a_certificate(control: int, certificates: Certificates) -> None:
    identity = certificates.identity("client")
    assert _speaks(control, identity.client_context()) == "TLSv1.3"
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.load_verify_locations(certificates.authority)
    with pytest.raises((ssl.SSLError, OSError)):
        _speaks(control, nobody)
    with grpc.secure_channel(f"localhost:{control}", identity.channel_credentials()) as channel:
        grpc.channel_ready_future(channel).result(60)


def _other_key(files: Certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (files.folder / "server.key").write_bytes(key.private_bytes(*form))


def _locked_key(files: Certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (files.folder / "server.key").write_bytes(
        key.private_bytes(*form, serialization.BestAvailableEncryption(b"x"))
    )


def _other_authority(files: Certificates) -> None:
    (files.folder / "ca.crt").unlink()
    (files.folder / "ca.key").unlink()
    authority.make_authority(files.folder)


@pytest.mark.parametrize(
    ("spoil", "file", "words", "step"),
    [
        (lambda files: (files.folder / "server.crt").unlink(), "server.crt", "No such file", "tls issue"),
        (lambda files: (files.folder / "server.key").unlink(), "server.key", "No such file", "tls issue"),
        (lambda files: (files.folder / "ca.crt").unlink(), "ca.crt", "No such file", "tls issue"),
        (
            lambda files: (files.folder / "server.crt").write_text("x"),
            "server.crt",
            "no certificate",
            "tls issue",
        ),
        (
            lambda files: (files.folder / "server.key").write_text("x"),
            "server.key",
            "no private key",
            "tls issue",
        ),
        (lambda files: (files.folder / "server.key").chmod(0o640), "server.key", "0640", "chmod 600"),
        (_other_key, "server.key", "not the key of", "tls issue"),
        (_locked_key, "server.key", "encrypted", "openssl pkey"),
        (_other_authority, "server.crt", "not issued by", "--tls-ca"),
    ],
)
def test_files_that_make_no_identity(
    own: Certificates, spoil: Callable[[Certificates], Any], file: str, words: str, step: str
) -> None:
    spoil(own)
    with pytest.raises(ConfigError, match=words) as caught:
        own.identity()
    assert str(own.folder / file) in str(caught.value)
    assert step in caught.value.hint


@pytest.mark.parametrize(("days", "words"), [(100, "it ended on"), (-1, "it begins on")])
def test_a_certificate_has_its_time(
    own: Certificates, monkeypatch: pytest.MonkeyPatch, days: int, words: str
) -> None:
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    monkeypatch.setattr(tls, "_now", lambda: then)
    with pytest.raises(ConfigError, match=words):
        own.identity()


def test_all_three_files_or_none(certificates: Certificates) -> None:
    assert identity_of(MonitorOptions()) is None
    assert identity_of(MonitorOptions(tls_ca=str(certificates.authority))) is None  # as programs have it
    with pytest.raises(ConfigError, match="--tls-key and --tls-ca: not given") as caught:
        identity_of(MonitorOptions(tls_cert="server.crt"))
    assert "tls issue" in caught.value.hint


def _key_of_an_unknown_kind(files: Certificates) -> None:
    """The number of its curve is one that no curve has."""
    path = files.folder / "server.crt"
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    curve = bytes.fromhex("2a8648ce3d0301")
    path.write_text(ssl.DER_cert_to_PEM_cert(der.replace(curve + b"\x07", curve + b"\x66")))


def test_a_key_of_an_unknown_kind(own: Certificates) -> None:
    identity = own.identity()
    first = identity.server_context()
    _key_of_an_unknown_kind(own)
    assert identity.server_context() is first
    with pytest.raises(ConfigError, match="its key is of a kind that is not known here"):
        own.identity()


def test_files_that_could_not_be_used_are_tried_again(
    own: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a certificate of a machine whose clock is ahead, or what was there when no descriptor was left."""
    now = 0.0
    paths = (own.folder / "server.crt", own.folder / "server.key", own.authority)
    identity = tls.Identity(*paths, clock=lambda: now)
    first = identity.server_context()
    authority.issue(own.folder, "server", ["localhost"], replace=True)
    right = tls._now
    monkeypatch.setattr(tls, "_now", lambda: right() - datetime.timedelta(hours=1))
    assert identity.server_context() is first  # it has not begun
    now += tls.AGAIN_SECONDS
    assert identity.server_context() is first
    monkeypatch.setattr(tls, "_now", right)
    now += tls.AGAIN_SECONDS - 1
    assert identity.server_context() is first
    now += 1
    assert identity.server_context() is not first
    assert identity.version == 2


def test_new_files_take_effect_and_bad_ones_do_not(own: Certificates) -> None:
    identity = own.identity()
    first = identity.server_context()
    assert identity.server_context() is first
    _other_key(own)  # as between the two files of a new pair
    assert identity.server_context() is first
    authority.issue(own.folder, "server", ["localhost", "new.example"], replace=True)
    assert identity.server_context() is not first
    assert identity.refresh() == 2
    client = own.identity("client").client_context()
    with shake_hands(identity.server_context(), client, "new.example") as secured:
        assert secured.version() == "TLSv1.3"
