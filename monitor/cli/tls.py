"""`gpuferry tls …`: a private authority for a cluster that has none, and the certificates that it issues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .parameters import Json

SCHEMA = "gpuferry.tls/1"
FOLDER = "tls"
HERE = ("localhost", "127.0.0.1", "::1")  # who is on the machine calls it by these

app = typer.Typer(name="tls", help="Certificates for TLS, from a private authority.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="FOLDER", help="Where the authority is; default: tls in the state folder"
    ),
]
DAYS_MOST = 36500  # a century: a certificate has no years of five digits
Days = Annotated[int, typer.Option("--days", min=1, max=DAYS_MOST, metavar="N", help="How long it is good")]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Overwrite the one that is there; without --host and --client, with one for the same use",
    ),
]


def _folder(given: Path | None) -> Path:
    from ..settings.folders import state_directory

    return given.absolute() if given else state_directory() / FOLDER


@app.command()
def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="default: tls in the state folder")
    ] = None,
    days: Days = 1825,
) -> None:
    """Make an authority. All machines get its `ca.crt`; `ca.key` stays here."""
    from ..service.authority import make_authority

    certificate = make_authority(_folder(folder), days)
    print(f"{certificate}: the authority's certificate, for every GPU server, registry and program")
    print(
        f"{certificate.with_suffix('.key')}: its key; whoever has it can pose as any of them: it stays here"
    )
    print("next: gpuferry tls issue NAME --host HOST" + (f" --folder {folder}" if folder else ""))


@app.command()
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the machine or person; also of the files")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address that others call it by; repeatable"),
    ] = None,
    client: Annotated[bool, typer.Option("--client", help="For who calls servers, and is none")] = False,
    days: Days = 90,
    replace: Replace = False,
    folder: Folder = None,
) -> None:
    """Issue a certificate. It is a server's, or with --client somebody's who only calls."""
    from ..service.authority import CERTIFICATE, as_host, described, issue

    where = _folder(folder)
    if replace and not (host or client) and (where / f"{name}.crt").exists():
        # The next of a server whose clients call it by other names than this would shut them out.
        before = described(where / f"{name}.crt")
        host, client = list(before.hosts), before.purpose == "client"
    hosts = [] if client else [*filter(as_host, [name]), *(host or []), *HERE]
    certificate, key = issue(where, name, hosts, client=client, days=days, replace=replace)
    files = {"CERT": certificate, "KEY": key, "CA": where / CERTIFICATE}
    if client:
        print("\n".join(f"GPUFERRY_TLS_{what}={file}" for what, file in files.items()))
    else:
        print("gpuferry monitor " + " ".join(f"--tls-{what.lower()} {file}" for what, file in files.items()))


@app.command()
def show(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Certificates")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Print what certificates say. Without files: those beside the authority."""
    from .errors import CliError, Exit

    paths = files or sorted(_folder(folder).glob("*.crt"))
    if not paths:
        raise CliError(
            Exit.NOT_FOUND, f"no certificate in {_folder(folder)}", "`gpuferry tls init` makes one"
        )
    found = [_plain(path) for path in paths]
    if as_json:
        print(json.dumps({"schema": SCHEMA, "certificates": found}, indent=2))
        return
    from .tables import print_table

    rows = [
        (
            one["file"],
            one["name"],
            one["purpose"],
            ",".join(one["hosts"]) or "-",
            one["ends"],
            str(one["days"]),
        )
        for one in found
    ]
    print_table(("FILE", "NAME", "PURPOSE", "HOSTS", "UNTIL", "DAYS LEFT"), rows)


def _plain(path: Path) -> dict[str, Any]:
    from ..service.authority import described

    said = described(path)
    return {
        "file": str(path),
        "name": said.name,
        "purpose": said.purpose,
        "hosts": list(said.hosts),
        "ends": said.ends.isoformat(timespec="seconds"),
        "days": said.days_left,
    }
