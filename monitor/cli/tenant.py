"""`gpuferry tenant …`: what tenants may have, have, and have used."""

from __future__ import annotations

import asyncio
import csv
import inspect
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings.limits import KINDS, NAMES
from .errors import CliError, Exit, say
from .flags import Flags, with_parameters
from .parameters import Control, Json, Timeout, TokenFile
from .server import InRegistry, KeyFile
from .token import State

if TYPE_CHECKING:
    from gpuferry.specs._generated import tenants_pb2

SCHEMA, USAGE_SCHEMA = "gpuferry.tenants/1", "gpuferry.usage/1"
DEFAULT = "default"

app = typer.Typer(
    name="tenant",
    help="Limits and usage of tenants. Of a whole cluster with --registry, else of this machine's monitor.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(metavar="TENANT", help="Its name; `default`: all that have no limits of their own")
]


def _flag(name: str) -> inspect.Parameter:
    kind = KINDS[name]
    none = "" if kind.finite else "none: no limit, "
    declared = typer.Option(
        f"--{name}", metavar=kind.metavar, help=f"{kind.help}; {none}default: as for others"
    )
    annotation = Annotated[str | None, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


@app.command("set")
@with_parameters({name: _flag(name) for name in NAMES})
def set_limits(
    given: Flags,
    tenant: Name,
    registry: InRegistry = None,
    key: KeyFile = None,
    state: State = None,
    timeout: Timeout = 5.0,
    as_json: Json = False,
) -> None:
    """Set limits of a tenant. Those that are not named stay. A running monitor heeds them within a second."""
    from gpuferry.specs._generated import tenants_pb2

    from ..door.tokens.proof import is_tenant
    from ..settings.limits import parse_limits
    from ..tenants.messages import to_message

    said = {name: text for name, text in given.items() if text is not None}
    if not is_tenant(tenant):
        what = "lower-case letters, digits, `-` and `_`, at most 63 characters"
        raise CliError(Exit.USAGE, f"tenant {tenant!r}: {what}")
    if not said:
        raise CliError(Exit.USAGE, "nothing to set", "for example: gpuferry tenant set NAME --sessions 4")
    unset = [name for name, text in said.items() if text == DEFAULT]
    try:
        limits = parse_limits({name: text for name, text in said.items() if text != DEFAULT})
    except ValueError as error:
        raise CliError(Exit.USAGE, f"--{error}") from None
    request = tenants_pb2.SetRequest(limits=to_message(tenant, limits), unset=unset)
    if registry:
        from .cluster import Cluster

        found = Cluster(registry, key, timeout).call("SetTenant", request)
    else:
        found = _set_here(state, request)
    report = tenants_pb2.Report(tenant=tenant, set=found)
    if as_json:
        print(json.dumps({"schema": SCHEMA, "tenants": [_plain(report)]}, indent=2))
    else:
        print(f"{tenant}: {_shown(found) or 'as for others'}")


def _set_here(state: str | None, request: tenants_pb2.SetRequest) -> tenants_pb2.Limits:
    from ..settings.folders import store_path
    from ..store.interface import StoreError
    from ..store.sqlite import SqliteStore
    from ..tenants.book import LimitBook
    from ..tenants.messages import from_message, to_message

    async def run() -> tenants_pb2.Limits:
        store = SqliteStore(store_path(state))
        try:
            tenant = request.limits.tenant
            found = await LimitBook(store).set(tenant, from_message(request.limits), request.unset)
            return to_message(tenant, found)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        raise CliError(
            Exit.FAILED,
            str(error),
            "is the disk full (`df`), or the folder another user's? --state names one",
        ) from None


def _shown(limits: tenants_pb2.Limits) -> str:
    from ..tenants.messages import from_message

    return ", ".join(f"{name} {text}" for name, text in from_message(limits).shown().items())


def _plain(report: tenants_pb2.Report) -> dict[str, Any]:
    from ..tenants.messages import plain_limits, plain_usage

    return {
        "tenant": report.tenant,
        "limits": plain_limits(report.limits),
        "set": plain_limits(report.set),
        "sessions": report.sessions,
        "waiting": report.waiting,
        "memory": report.memory,
        "gpus": report.gpus,
        "share": report.share,
        "usage": plain_usage(report.usage),
    }


def _reports(
    tenant: str,
    registry: str | None,
    key: str | None,
    control: str | None,
    token_file: str | None,
    timeout: float,
) -> list[tenants_pb2.Report]:
    from gpuferry.specs._generated import tenants_pb2

    request = tenants_pb2.ListRequest(tenant=tenant)
    if registry:
        from .cluster import Cluster

        return list(Cluster(registry, key, timeout).call("ListTenants", request).reports)
    from .client import monitor_client

    with monitor_client(control, token_file) as (stub, metadata):
        return list(stub.ListTenants(request, metadata=metadata, timeout=timeout).reports)


@app.command("list")
def show_all(
    registry: InRegistry = None,
    key: KeyFile = None,
    control: Control = None,
    token_file: TokenFile = None,
    timeout: Timeout = 5.0,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", help="Names only")] = False,
) -> None:
    """Print all tenants: what they have, and what was set."""
    from gpuferry.guest.units import format_size

    from .tables import print_table

    reports = _reports("", registry, key, control, token_file, timeout)
    if as_json:
        print(json.dumps({"schema": SCHEMA, "tenants": [_plain(one) for one in reports]}, indent=2))
    elif quiet:
        for one in reports:
            print(one.tenant)
    else:
        rows = [
            (one.tenant, str(one.sessions), str(one.waiting), format_size(one.memory), _shown(one.set) or "-")
            for one in reports
        ]
        print_table(("TENANT", "SESSIONS", "WAITING", "MEMORY", "LIMITS"), rows)


@app.command()
def show(
    tenant: Name,
    registry: InRegistry = None,
    key: KeyFile = None,
    control: Control = None,
    token_file: TokenFile = None,
    timeout: Timeout = 5.0,
    as_json: Json = False,
) -> None:
    """Print the limits of a tenant as they hold, and what it has."""
    found = [
        one for one in _reports(tenant, registry, key, control, token_file, timeout) if one.tenant == tenant
    ]
    if not found:
        raise CliError(
            Exit.NOT_FOUND,
            f"nothing is known of tenant {tenant}",
            "see `gpuferry tenant list`, or set limits: a monitor knows of them within a second",
        )
    (report,) = found
    if as_json:
        print(json.dumps({"schema": SCHEMA, "tenants": [_plain(report)]}, indent=2))
        return
    from ..tenants.messages import from_message

    set_here = from_message(report.set).shown()
    for name, text in from_message(report.limits).shown().items():
        print(f"{name:12} {text}{'' if name in set_here else '  (default)'}")
    from gpuferry.guest.units import format_size

    print(
        f"has          {report.sessions} sessions, {report.waiting} waiting, {format_size(report.memory)}, "
        f"{report.gpus} GPUs, {report.share:g} of their time"
    )


@app.command()
def usage(
    tenant: Annotated[str, typer.Argument(metavar="[TENANT]", help="This one only", show_default=False)] = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="YYYY-MM-DD", help="From this day (UTC) on; else ever")
    ] = None,
    registry: InRegistry = None,
    key: KeyFile = None,
    control: Control = None,
    token_file: TokenFile = None,
    timeout: Timeout = 5.0,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated, with a header")] = False,
) -> None:
    """Print what tenants have used, so that they can be billed."""
    from ..tenants.messages import USED, plain_usage
    from ..tenants.usage import DAYS_MOST
    from .tables import print_table

    if since and not _is_day(since):
        raise CliError(Exit.USAGE, f"--since {since}: no such day; write YYYY-MM-DD")
    reports = _reports(tenant, registry, key, control, token_file, timeout)
    if since and (first := _first_day_kept(reports)) and since < first:
        say(f"days before {first} are not in these figures: the last {DAYS_MOST} are kept", kind="note: ")
    found = [
        {"tenant": one.tenant} | plain_usage(_since(one, since) if since else one.usage)
        for one in reports
        if tenant in ("", one.tenant)
    ]
    if as_json:
        print(json.dumps({"schema": USAGE_SCHEMA, "since": since, "usage": found}, indent=2))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, ("tenant", *USED))
        writer.writeheader()
        writer.writerows(found)
    else:
        header = ("TENANT", "SESSIONS", "SECONDS", "GPU SECONDS", "GIB HOURS", "CALLS")
        rows = [
            (
                one["tenant"],
                str(one["sessions"]),
                f"{one['wall_seconds']:.1f}",
                f"{one['gpu_seconds']:.1f}",
                f"{one['memory_byte_seconds'] / (1 << 30) / 3600:.3f}",
                str(one["calls"]),
            )
            for one in found
        ]
        print_table(header, rows)


def _is_day(text: str) -> bool:
    try:
        time.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return len(text) == len("YYYY-MM-DD")


def _first_day_kept(reports: list[tenants_pb2.Report]) -> str:
    """The first of as many days as are kept, if there are so many; empty: nothing was forgotten yet."""
    from ..tenants.usage import DAYS_MOST

    days = sorted({usage.day for report in reports for usage in report.days})
    return days[0] if len(days) >= DAYS_MOST else ""


def _since(report: tenants_pb2.Report, day: str) -> tenants_pb2.Usage:
    from gpuferry.specs._generated import tenants_pb2

    from ..tenants.messages import add_usage

    total = tenants_pb2.Usage(tenant=report.tenant)
    for usage in report.days:
        if usage.day >= day:
            add_usage(total, usage)
    return total
