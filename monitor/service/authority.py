"""A private authority: it issues the certificates of one cluster to servers and to people."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..settings.errors import ConfigError
from .files import make_folder
from .tls import NEW, key_in, read_certificates

CERTIFICATE, KEY = "ca.crt", "ca.key"
AUTHORITY_DAYS = 1825
DAYS = 90
EARLIER = datetime.timedelta(minutes=5)  # clocks of other machines may be behind
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}")  # it is also the name of files
_DNS = re.compile(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)

Key = ec.EllipticCurvePrivateKey


def make_authority(folder: Path, days: int = AUTHORITY_DAYS) -> Path:
    """Make an authority in the folder: `ca.crt`, to be copied to all, and `ca.key`, which stays.

    Returns the certificate's path. Raises ConfigError, also if there is one already.
    """
    _make_folder(folder)
    key = _new_key()
    name = _name("gpuferry authority")
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    _write_pair(folder / CERTIFICATE, folder / KEY, builder.sign(key, hashes.SHA256()), key)
    return folder / CERTIFICATE


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    *,
    client: bool = False,
    days: int = DAYS,
    replace: bool = False,
) -> tuple[Path, Path]:
    """Issue a certificate to a server, for these names and addresses, or with `client` to somebody who only
    calls servers. Returns the paths of certificate and key beside the authority's. Raises ConfigError.
    """
    if not NAME.fullmatch(name) or name == "ca":
        raise ConfigError(f"{name!r} is no name for a certificate", "letters, digits, `.`, `_`, `@` and `-`")
    (authority,) = read_certificates(folder / CERTIFICATE)[:1]
    authority_key = _read_key(folder / KEY)
    if authority_key.public_key() != key_in(folder / CERTIFICATE, authority):
        text = f"{folder / KEY}: this is not the key of {folder / CERTIFICATE}"
        raise ConfigError(text, "bring back the one or the other")
    key = _new_key()
    builder = _builder(_name(name), authority.subject, key.public_key(), days, authority)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([] if client else [ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
    )
    if not client:
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    _write_pair(*paths, builder.sign(authority_key, hashes.SHA256()), key, replace)
    return paths


@dataclass(frozen=True)
class Description:
    """What a certificate says of its holder, and until when it is good."""

    name: str
    purpose: str  # authority, server or client
    calls: bool  # whether its holder may call servers with it
    hosts: Sequence[str]
    ends: datetime.datetime
    lifetime: datetime.timedelta

    @property
    def left(self) -> datetime.timedelta:
        """How long the certificate is still good; negative if it has expired."""
        return self.ends - _now()

    @property
    def days_left(self) -> int:
        """Whole days; negative: it has ended."""
        return self.left.days

    @property
    def ends_soon(self) -> bool:
        """Whether it is time for another: less than a third of its life is left, or than three weeks."""
        return self.left < min(self.lifetime / 3, datetime.timedelta(days=21))


def describe(certificate: x509.Certificate) -> Description:
    """What a certificate says. One without a name has an empty one. Raises what its extensions raise that are
    broken.
    """
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    extensions = certificate.extensions
    hosts: list[str] = []
    purpose, calls = "server", True  # one that names no use is good for any
    with contextlib.suppress(x509.ExtensionNotFound):
        hosts = [
            str(entry.value)
            for entry in extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        ]
    with contextlib.suppress(x509.ExtensionNotFound):
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        anything = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes
        purpose = "server" if anything or ExtendedKeyUsageOID.SERVER_AUTH in purposes else "client"
        calls = anything or ExtendedKeyUsageOID.CLIENT_AUTH in purposes
    with contextlib.suppress(x509.ExtensionNotFound):
        if extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            purpose = "authority"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Description(str(names[0].value) if names else "", purpose, calls, hosts, ends, ends - begins)


def described(path: Path) -> Description:
    """What the first certificate in a file says. Raises ConfigError, which names the file."""
    certificate = read_certificates(path)[0]
    try:
        return describe(certificate)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ConfigError(f"{path}: what the certificate says cannot be read: {error}", NEW) from None


def as_host(name: str) -> bool:
    """Whether others could call a machine by this name or address."""
    try:
        _general_name(name)
    except ConfigError:
        return False
    return True


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _read_key(path: Path) -> Key:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "`gpuferry tls init` makes an authority") from None
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: it holds no private key in PEM without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"{path}: this authority was not made by `gpuferry tls init`", "issue with its own tools"
        )
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: int,
    within: x509.Certificate | None = None,
) -> x509.CertificateBuilder:
    now = _now()
    ends = now + datetime.timedelta(days=days)
    if within:
        if within.not_valid_after_utc < now:
            raise ConfigError(
                f"the authority ended on {within.not_valid_after_utc:%Y-%m-%d}", "`gpuferry tls init`"
            )
        ends = min(ends, within.not_valid_after_utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(
    digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if not _DNS.fullmatch(host) or len(host) > 253:
        raise ConfigError(
            f"--host {host}: neither a name nor an address", "without a port, as in gpu-a.example"
        )
    return x509.DNSName(host)


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}", "name another folder") from None


def _write_pair(
    certificate_path: Path, key_path: Path, certificate: x509.Certificate, key: Key, replace: bool = False
) -> None:
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = certificate.public_bytes(serialization.Encoding.PEM)
    for path in (certificate_path, key_path):
        if path.exists() and not replace:
            issued = certificate_path.name != CERTIFICATE  # an authority is not replaced in its place
            hint = "name another, or say --replace" if issued else "name another folder"
            raise ConfigError(f"{path} is there already, and was left alone", hint)
    staged: list[tuple[Path, Path]] = []
    try:  # both are on the disk before one takes its place: a key without its certificate would start nothing
        for path, content, mode in ((key_path, secret, 0o600), (certificate_path, public, 0o644)):
            scratch = path.with_name(f".{path.name}.new")
            staged.append((scratch, path))
            _stage(scratch, content, mode)
        for scratch, path in staged:
            if replace:
                scratch.replace(path)
            else:
                os.link(scratch, path)  # fails if somebody else was quicker
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "name another folder") from None
    finally:
        for scratch, _ in staged:
            with contextlib.suppress(OSError):  # it may hold a key
                scratch.unlink()


def _stage(scratch: Path, content: bytes, mode: int) -> None:
    """Write a file that nobody looks at yet. Raises OSError."""
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
