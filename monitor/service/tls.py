"""What daemons and the CLI show each other over TLS: certificate, key, and the authority they believe."""

from __future__ import annotations

import datetime
import ssl
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from ..settings.common import Encryption
from ..settings.errors import ConfigError

NEW = "`gpuferry tls issue NAME` makes a new one"
NEW_AUTHORITY = "`gpuferry tls init FOLDER` makes another, which issues all certificates anew"
AGAIN_SECONDS = 30.0  # until files that could not be used are tried again

log = structlog.get_logger()
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class _Material:
    """What the files held when they had this stamp."""

    stamp: Stamp
    server: ssl.SSLContext
    page: ssl.SSLContext
    client: ssl.SSLContext
    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes


class Identity:
    """Certificate, key and authority, read anew when a file has changed.

    Files that cannot be used do not take effect: what was read before stays, and the log says why. They are
    tried again, for what was wrong may pass: a certificate whose time had not begun, no descriptors.
    """

    def __init__(
        self, certificate: Path, key: Path, authority: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the files. Raises ConfigError, which names the file and says what to do."""
        self._paths = (certificate, key, authority)
        self._clock = clock
        self._refused: Stamp | None = None
        self._again = 0.0  # when those are tried again
        self._material = self._read()
        self.version = 1  # another number after every change

    def server_context(self) -> ssl.SSLContext:
        """For one accepted connection, or all until the files change: TLS 1.3, no tickets. It does not ask
        for the client's certificate.
        """
        return self._look().server

    def page_context(self) -> ssl.SSLContext:
        """The same for connections that stay with Python's ssl. Secrets of the others are written down for
        whoever goes on with them (`Shake`), and nobody would ever take what these leave there.
        """
        return self._look().page

    def client_context(self) -> ssl.SSLContext:
        """For one connection: TLS 1.3. The server must have a certificate of the authority for the name that
        is asked for; one that asks for ours gets it.
        """
        return self._look().client

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server, whose clients must show a certificate of the authority. It follows the files."""
        given = self._look()

        def newer() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            before, given = given, self._look()
            return None if given is before else _configuration(given)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given),
            newer,  # type: ignore[arg-type]  # None: as before
            require_client_authentication=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a gRPC channel, which keeps them: make another channel once `version` has changed."""
        now = self._look()
        return grpc.ssl_channel_credentials(now.authority, now.key, now.certificate)

    @property
    def certificates(self) -> tuple[Path, Path]:
        """Where the certificate is, and the authority's."""
        certificate, _, authority = self._paths
        return certificate, authority

    @property
    def authority(self) -> str:
        """The authority's certificate, in PEM."""
        return self._look().authority.decode()

    def refresh(self) -> int:
        """Look whether a file has changed. Returns `version`."""
        self._look()
        return self.version

    def _look(self) -> _Material:
        stamp = self._stamp()
        refused = stamp == self._refused
        if stamp != self._material.stamp and not (refused and self._clock() < self._again):
            try:
                self._material = self._read()
                self.version += 1
                log.info("read the certificate anew", file=str(self._paths[0]))
            except ConfigError as error:
                self._refused, self._again = stamp, self._clock() + AGAIN_SECONDS
                if not refused:
                    log.error("certificate files changed and are not used", error=str(error), hint=error.hint)
        return self._material

    def _stamp(self) -> Stamp:
        found = []
        for path in self._paths:
            try:
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _read(self) -> _Material:
        stamp = self._stamp()  # first: what changes while it is read is looked at again
        certificate, key, authority = self._paths
        check_private(key)
        chain, authorities = read_certificates(certificate), read_certificates(authority)
        _check_time(certificate, chain[0], NEW)
        _check_time(authority, authorities[0], NEW_AUTHORITY)
        if _public(_read_key(key)) != _public(key_in(certificate, chain[0])):
            raise ConfigError(f"{key}: this is not the key of {certificate}", NEW)
        if not _leads_to(chain, authorities):
            raise ConfigError(
                f"{certificate}: it was not issued by the authority in {authority}",
                "give its authority's certificate as --tls-ca, or issue another with `gpuferry tls issue`",
            )
        try:
            return _Material(
                stamp,
                _context(ssl.PROTOCOL_TLS_SERVER, self._paths),
                _context(ssl.PROTOCOL_TLS_SERVER, self._paths),
                _context(ssl.PROTOCOL_TLS_CLIENT, self._paths),
                *(path.read_bytes() for path in self._paths),
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{certificate} and {key} cannot be used: {error.strerror or error}", NEW
            ) from None


def identity_of(options: Encryption) -> Identity | None:
    """The identity that the settings name. An authority alone is no identity, but what programs are told whom
    to believe with. Raises ConfigError if certificate, key or authority is missing, or does not do.
    """
    files = {"--tls-cert": options.tls_cert, "--tls-key": options.tls_key, "--tls-ca": options.tls_ca}
    missing = [flag for flag, path in files.items() if not path]
    if not (options.tls_cert or options.tls_key):
        return None
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)}: not given; certificate, key and authority go together",
            "`gpuferry tls issue NAME` makes all three",
        )
    return Identity(*(Path(path) for path in files.values() if path))


def identity_entries(options: Encryption) -> dict[str, str]:
    """What a daemon publishes of its identity, for commands of the same user: where the files are."""
    files = {"CERT": options.tls_cert, "KEY": options.tls_key, "CA": options.tls_ca}
    return {f"GPUFERRY_TLS_{name}": path for name, path in files.items() if path}


def read_certificates(path: Path) -> Sequence[x509.Certificate]:
    """The certificates in a PEM file, at least one. Raises ConfigError."""
    try:
        return x509.load_pem_x509_certificates(_content(path))
    except ValueError:
        raise ConfigError(f"{path}: it holds no certificate in PEM", NEW) from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", "`gpuferry tls init`, then `gpuferry tls issue`"
        ) from None


def _read_key(path: Path) -> PublicKeyTypes:
    try:
        return serialization.load_pem_private_key(_content(path), None).public_key()
    except TypeError:
        raise ConfigError(
            f"{path}: the key is encrypted, and nobody is there to ask for its password",
            f"`openssl pkey -in {path} -out FILE` writes it without",
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: it holds no private key in PEM", NEW) from None


def key_in(path: Path, certificate: x509.Certificate) -> PublicKeyTypes:
    """The public key of a certificate that was read from `path`. Raises ConfigError."""
    try:
        return certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: its key is of a kind that is not known here", NEW) from None


def _public(key: PublicKeyTypes) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)


def check_private(path: Path) -> None:
    """Raise ConfigError if others than the owner can read the key in this file."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # reading it says why
    if mode & 0o077:
        raise ConfigError(f"{path}: others can read the key (mode {mode:04o})", f"`chmod 600 {path}`")


def _check_time(path: Path, certificate: x509.Certificate, new: str) -> None:
    now = _now()
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise ConfigError(f"{path}: it ended on {ends:%Y-%m-%d}", f"{new}, if this machine's clock is right")
    if now < begins:
        raise ConfigError(f"{path}: it begins on {begins:%Y-%m-%d}", "is this machine's clock right?")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _leads_to(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Whether the first certificate was issued by an authority, perhaps by way of others in the chain."""
    last, between = chain[0], list(chain[1:])
    while not any(_issued(last, authority) for authority in authorities):
        found = next((other for other in between if _issued(last, other)), None)
        if not found:
            return False
        between.remove(found)
        last = found
    return True


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True


def _context(protocol: int, paths: tuple[Path, Path, Path]) -> ssl.SSLContext:
    certificate, key, authority = paths
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # connections live long; a ticket is one more thing to steal
    return context


def _configuration(material: _Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.authority
    )
