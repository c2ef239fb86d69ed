"""What daemons show over TLS, and whom they believe: whether it can be used, for whom, and until when."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...service.authority import Description, described
from ...service.dial import host_of, stays_here
from ...service.tls import identity_of
from ...settings.errors import ConfigError
from ...settings.monitor_options import AUTO
from .check import Check
from .permissions import replaceable_by_others

AGAIN = "`gpuferry tls issue NAME --replace`; who uses it takes the new one by itself"
NEXT_AUTHORITY = (
    "`gpuferry tls init NEW`, issue all certificates there, and give its ca.crt to all beside the old "
    "one (both in one file) before any of them shows a new one"
)
OTHER_HOST = "`gpuferry tls issue NAME --replace --host HOST`, with all names that others call it by"
EVERYWHERE = ("0.0.0.0", "::", "")
OWN = {  # the settings of each that say where it listens
    "monitor": ("listen", "control", "http"),
    "registry": ("listen", "control"),
    "functions": ("listen",),
}


def certificates(program: str, values: Any) -> Iterator[Check]:
    """Check the certificate of a daemon and its authority's."""
    name = f"certificate of the {program}"
    try:
        if identity_of(values) is None:
            return
        certificate, authority = Path(values.tls_cert), Path(values.tls_ca)
        said, issuer = described(certificate), described(authority)
    except ConfigError as error:
        yield Check(name, "failed", str(error), error.hint)
        return
    yield _end(name, certificate, said, AGAIN)
    yield _end(name, authority, issuer, NEXT_AUTHORITY)
    yield from _use(name, certificate, said)
    yield from _hosts(name, certificate, said, program, values)
    for file in (certificate, Path(values.tls_key), authority):
        if found := replaceable_by_others(name, file):
            yield found


def _end(name: str, file: Path, said: Description, again: str) -> Check:
    detail = f"{file}: good until {said.ends:%Y-%m-%d}, {said.days_left} days"
    return Check(name, "note", detail, again) if said.ends_soon else Check(name, "ok", detail)


def _use(name: str, file: Path, said: Description) -> Iterator[Check]:
    if said.purpose != "server":
        detail = f"{file}: it is for a {said.purpose}: whoever comes finds that it is no server's"
        yield Check(name, "failed", detail, "`gpuferry tls issue NAME` without --client")
    elif not said.calls:
        detail = f"{file}: it is not good for client use: registries and other GPU servers refuse it"
        yield Check(name, "note", detail, "have it issued for both uses (serverAuth, clientAuth)")


def _hosts(name: str, file: Path, said: Description, program: str, values: Any) -> Iterator[Check]:
    """Say which names are not in the certificate by which others come, or are sent."""
    told = getattr(values, "advertise", None)
    if told and not covers(said.hosts, host_of(told)):
        detail = f"{file}: it is for {_listed(said.hosts)}, and guests are told to come to {told}"
        yield Check(name, "failed", detail, OTHER_HOST)
    for flag in OWN[program]:
        address = getattr(values, flag, None)
        if not address or address == AUTO or stays_here(address) or host_of(address) in EVERYWHERE:
            continue
        if not covers(said.hosts, host_of(address)):
            detail = f"{file}: it is for {_listed(said.hosts)}: nobody can come to --{flag} {address} by that"
            yield Check(name, "note", f"{detail} address", f"{OTHER_HOST}; or let them come by those names")


def _listed(hosts: Iterable[str]) -> str:
    return ", ".join(hosts) or "no name at all"


def covers(hosts: Iterable[str], host: str) -> bool:
    """Whether a certificate for these names and addresses is one for this host: as OpenSSL has it, `*` stands
    for one label, and an address is no name.
    """
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        above = "*." + name.partition(".")[2]
        return any(each.lower() in (name, above) for each in hosts)
    return any(_address(each) == wanted for each in hosts)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
