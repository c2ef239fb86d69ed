"""`gpuferry token …`: who may use the GPU servers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from .ask import confirm
from .errors import CliError, Exit
from .parameters import Json, Timeout, Yes
from .server import InRegistry, KeyFile

if TYPE_CHECKING:
    from gpuferry.specs._generated import registry_pb2

    from ..door.tokens.book import TokenBook

SCHEMA = "gpuferry.tokens/1"

app = typer.Typer(
    name="token",
    help="Tokens of tenants. In a registry with --registry, else in this machine's state folder.",
    no_args_is_help=True,
)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Lower-case letters, digits, `-` and `_`")]
STATE_STEP = "is the disk full (`df`), or the folder another user's? --state names one"
State = Annotated[
    str | None, typer.Option("--state", metavar="FOLDER", help="A monitor's state [GPUFERRY_STATE_DIR]")
]
Result = TypeVar("Result")


def _local(state: str | None, use: Callable[[TokenBook], Awaitable[Result]]) -> Result:
    from ..door.tokens.book import TokenBook, TooMany
    from ..settings.folders import store_path
    from ..store.interface import StoreError
    from ..store.sqlite import SqliteStore

    async def run() -> Result:
        store = SqliteStore(store_path(state))
        try:
            return await use(TokenBook(store))
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except (StoreError, TooMany) as error:
        step = "" if isinstance(error, TooMany) else STATE_STEP
        raise CliError(Exit.FAILED, str(error), step) from None


def _check(tenant: str) -> None:
    from ..door.tokens.proof import is_tenant

    if not is_tenant(tenant):
        raise CliError(
            Exit.USAGE, f"tenant {tenant!r}: lower-case letters, digits, `-` and `_`, at most 63 characters"
        )


@app.command()
def new() -> None:
    """Print a new secret. It has 256 random bits, is for a token or key file, and is kept nowhere."""
    import secrets

    print(secrets.token_hex(32))


@app.command()
def create(
    tenant: Tenant,
    registry: InRegistry = None,
    key: KeyFile = None,
    state: State = None,
    timeout: Timeout = 5.0,
) -> None:
    """Print a new token. It is shown this once: only what checks it is kept."""
    from gpuferry.specs._generated import registry_pb2

    from ..door.tokens import proof
    from ..door.tokens.book import new_record
    from ..settings.limits import DEFAULT

    _check(tenant)
    if tenant == DEFAULT:
        raise CliError(
            Exit.USAGE,
            f"no tenant can be called {DEFAULT}",
            "`gpuferry tenant set` has that name for all who have no limits of their own: choose another",
        )
    token = proof.make(tenant)
    record = new_record(token)
    if registry:
        from .cluster import Cluster

        Cluster(registry, key, timeout).call("AddToken", registry_pb2.AddTokenRequest(token=record))
    else:
        _local(state, lambda book: book.add(record))
    print(token)
    print(f"token {record.id} of {tenant}: set GPUFERRY_TOKEN to it, or keep it in a file", file=sys.stderr)


@app.command()
def revoke(
    tenant: Tenant,
    token: Annotated[str, typer.Option("--id", metavar="ID", help="This one only")] = "",
    kill: Annotated[bool, typer.Option("--kill", help="End the tenant's sessions as well")] = False,
    yes: Yes = False,
    registry: InRegistry = None,
    key: KeyFile = None,
    state: State = None,
    timeout: Timeout = 5.0,
) -> None:
    """Let a tenant's tokens begin no new sessions. Those that run may end by themselves, unless --kill."""
    from gpuferry.specs._generated import registry_pb2

    _check(tenant)
    which = f"token {token} of {tenant}" if token else f"all tokens of {tenant}"
    confirm(f"Revoke {which}{' and end its sessions' if kill else ''}?", yes)
    if registry:
        from .cluster import Cluster

        request = registry_pb2.RevokeTokensRequest(tenant=tenant, id=token, kill=kill)
        revoked = Cluster(registry, key, timeout).call("RevokeTokens", request).revoked
    else:
        revoked = _local(state, lambda book: book.revoke(tenant, token, kill))
    if kill and not token and not revoked:
        print(f"{tenant} has no tokens; sessions that it still has end", file=sys.stderr)
    elif not revoked:
        missing = f"no token {token} of {tenant}" if token else f"{tenant} has no tokens"
        raise CliError(Exit.NOT_FOUND, missing, "see `gpuferry token list`")


@app.command("list")
def list_tokens(
    registry: InRegistry = None,
    key: KeyFile = None,
    state: State = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("-q", help="Ids only")] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print tenants, ids and dates of all tokens; never the tokens."""
    tokens = _tokens(registry, key, state, timeout)
    if as_json:
        plain = [{"tenant": one.tenant, "id": one.id, "created": one.created} for one in tokens]
        print(json.dumps({"schema": SCHEMA, "tokens": plain}, indent=2))
    elif quiet:
        for one in tokens:
            print(one.id)
    else:
        from .tables import print_table

        rows = [
            (one.tenant, one.id, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.created)))
            for one in tokens
        ]
        print_table(("TENANT", "ID", "CREATED"), rows)


def _tokens(
    registry: str | None, key: str | None, state: str | None, timeout: float
) -> list[registry_pb2.Token]:
    from gpuferry.specs._generated import registry_pb2

    if registry:
        from .cluster import Cluster

        reply = Cluster(registry, key, timeout).call("ListTokens", registry_pb2.ListTokensRequest())
        return list(reply.tokens)
    return _local(state, lambda book: book.all())
