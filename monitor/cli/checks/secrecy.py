"""What others could read, guess or replace: secrets and their files, ways in the clear."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuferry.guest.endpoint import REGISTRY, TLS_SCHEME, first_line

from ...service.dial import stays_here
from ...settings.errors import ConfigError
from ...settings.folders import STORE
from ...settings.monitor_options import AUTO
from ...settings.tokens import check_strength
from .. import reach
from .check import Check
from .permissions import readable_by_others, replaceable_by_others

SECURE = (TLS_SCHEME, "https://")
WITH_TLS = "give it --tls-cert, --tls-key and --tls-ca: `gpuferry tls init`, `gpuferry tls issue NAME`"
SECRETS = ("token_file", "cluster_key_file", "page_key_file")
KEPT = ("snapshot_key_file", "etcd_password_file", "etcd_key")  # secrets that others made
ROOMS = ("", REGISTRY, "functions")  # in the runtime folder: where daemons publish how they are reached


def secret_file(name: str, file: Path) -> Check:
    """Check that a file holds a secret that nobody else can read or guess."""
    new = f"`gpuferry token new > {file}` makes one"
    try:
        secret = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        return Check(name, "failed", f"{file}: {reason}", new)
    if not secret:
        return Check(name, "failed", f"{file}: its first line is empty", new)
    try:
        check_strength(f"what is in {file}", secret)
    except ConfigError as error:
        return Check(name, "failed", str(error), error.hint)
    return readable_by_others(name, file) or replaceable_by_others(name, file) or Check(name, "ok", str(file))


def secrets(values: Any) -> Iterator[Check]:
    """Check the secrets that the settings of a program name."""
    for name in SECRETS:
        if file := getattr(values, name, None):
            yield secret_file(name, Path(file))
    yield from exposed(values, KEPT)


def exposed(values: Any, names: Sequence[str]) -> Iterator[Check]:
    """The findings of secrets in files that others can read or replace, by the names of their settings."""
    for name in names:
        if file := getattr(values, name, None):
            found = readable_by_others(name, Path(file)) or replaceable_by_others(name, Path(file))
            if found:
                yield found


def warn_of_exposed(values: Any) -> None:
    """Log which secrets of a daemon others can reach. It starts all the same: what mounts secrets into
    containers gives them such modes, and nobody else may be there.
    """
    import structlog

    for found in exposed(values, (*SECRETS, *KEPT)):
        structlog.get_logger().warning(
            "a secret is in reach of others", setting=found.name, reason=found.detail
        )


def variables() -> Iterator[Check]:
    """Check the secrets in the environment."""
    for variable in ("GPUFERRY_TOKEN", "GPUFERRY_CLUSTER_KEY", "GPUFERRY_FUNCTIONS_TOKEN"):
        try:
            if secret := first_line(os.environ.get(variable, "")):  # empty: as if it were not set
                check_strength(f"what is in {variable}", secret)
        except ConfigError as error:
            yield Check(variable, "failed", str(error), error.hint)


def state(folder: Path) -> Iterator[Check]:
    """Check that nobody else can read or replace what a daemon keeps."""
    try:
        keys = [*sorted(folder.glob("*.key")), *sorted(folder.glob("tls/*.key"))]
    except OSError as error:
        step = "set GPUFERRY_STATE_DIR, or give --state, another folder"
        yield Check("state folder", "failed", f"{folder}: {error.strerror}", step)
        return
    for path in (folder, folder / STORE, *keys):
        if found := readable_by_others("state folder", path):
            yield found
    if found := replaceable_by_others("state folder", folder):
        yield found


def asked_for(program: str, values: Any) -> Iterator[Check]:
    """Say which ways that the settings of a program ask for would be in the clear."""
    # The control address of a function server is a monitor's.
    names = ("listen",) if program == "functions" else ("listen", "control", "http")
    addresses = {f"--{name}": getattr(values, name, None) for name in names}
    for flag, address in addresses.items():
        if address and address != AUTO and not values.tls_cert and not stays_here(address):
            result = "note" if values.insecure else "failed"
            yield Check("in the clear", result, f"{flag} {address} reaches other machines", WITH_TLS)
    for registry in map(str.strip, (getattr(values, "registry", None) or "").split(",")):
        if registry and not registry.startswith(TLS_SCHEME) and not stays_here(registry):
            detail = f"what is said to the registry at {registry} can be read on the way"
            yield Check(
                "in the clear", "note", detail, f"give it a certificate and write {TLS_SCHEME}{registry}"
            )
    store = getattr(values, "store", "")
    if store.startswith("etcd:") and not values.etcd_ca:
        for address in store.removeprefix("etcd:").split(","):
            if not stays_here(address):
                detail = f"what is stored in etcd at {address} can be read and changed on the way"
                yield Check("in the clear", "note", detail, "give etcd's authority with --etcd-ca")
    if store.startswith("etcd:") and not (values.etcd_user or values.etcd_cert):
        detail = "whoever reaches etcd can read and change what is stored there"
        yield Check("access to etcd", "note", detail, "give --etcd-user, or --etcd-cert and --etcd-key")


def running() -> Iterator[Check]:
    """Say which ways to the daemons that run here are in the clear."""
    for room in ROOMS:
        found: Mapping[str, str] = reach.published(room)
        for what in ("TCP", "MONITOR", "CONTROL", "REGISTRY", "HTTP", "FUNCTIONS"):
            address = found.get(f"GPUFERRY_{what}", "")
            if address and not address.startswith(SECURE) and not stays_here(address):
                yield Check("in the clear", "note", f"{address} ({what.lower()}) has no TLS", WITH_TLS)
