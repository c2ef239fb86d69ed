"""`gpuferry functions …`: an HTTP server for functions, and what is deployed there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Annotated, Any

import typer
from gpuferry.guest.units import format_size, parse_size

from ..functions.config import FunctionsOptions
from ..functions.deployment import REPLICAS_MOST
from .ask import confirm
from .errors import CliError, Exit
from .flags import CommandByTopic, ConfigFile, Flags, with_options
from .functions_client import Client, check, locate
from .parameters import SECONDS_MOST, Json, Yes
from .tables import print_table

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of HTTP
SCHEMA = "gpuferry.functions/1"
PART = 64 << 10  # bytes of an answer that are printed at once
PATIENCE_MOST = 86400.0  # seconds; the server says what is wrong with longer times, and with what is none
START_MARGIN = 30.0  # seconds beyond a replica's own time to start

app = typer.Typer(name="functions", help="An HTTP server for functions on GPUs.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The function's: a to z, 0 to 9 and -")]
Server = Annotated[
    str | None, typer.Option("--server", metavar="HOST:PORT", help="The function server [GPUFERRY_FUNCTIONS]")
]
Token = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="Its token [GPUFERRY_FUNCTIONS_TOKEN_FILE]")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--request-timeout",
        min=0.01,
        max=SECONDS_MOST,
        metavar="SECONDS",
        help="How long to wait for an answer",
    ),
]


def _client(server: str | None, token_file: str | None, timeout: float) -> Client:
    return Client(*locate(server, token_file), timeout)


@app.command(cls=CommandByTopic)
@with_options(FunctionsOptions, "functions")
def serve(flags: Flags, config: ConfigFile = None) -> None:
    """Answer HTTP by functions: processes whose CUDA calls go to GPUs."""
    from .functions_serve import run_functions

    run_functions(flags, config)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _range(text: str) -> tuple[int, int]:
    least, dots, most = text.partition("..")
    if not least.isdecimal() or (dots and not most.isdecimal()):
        raise typer.BadParameter(f"--replicas {text!r}: LEAST..MOST is wanted, as 0..8")
    return int(least), int(most) if dots else int(least)


def _variables(given: list[str]) -> dict[str, str]:
    if wrong := [entry for entry in given if entry.find("=") < 1]:
        raise typer.BadParameter(f"--env {wrong[0]!r}: NAME=VALUE is wanted")
    return {name: value for name, _, value in (entry.partition("=") for entry in given)}


def _what(what: list[str]) -> dict[str, Any]:
    """A Python file, or a program with its arguments."""
    first = Path(what[0])
    if first.suffix == ".py" and len(what) > 1 and not shutil.which(what[0]):
        raise CliError(
            Exit.USAGE,
            f"{first}: a Python file takes no arguments",
            "to run it as a program: -- python FILE.py",
        )
    if first.suffix != ".py" or len(what) > 1:
        if first.is_dir():
            raise CliError(
                Exit.USAGE, f"{first}: it is a folder", "name the file in it that has handle(request)"
            )
        program = _program(what[0], "a Python file ends in .py; a program follows --")
        return {"command": [program, *what[1:]], "folder": os.getcwd()}
    try:
        source = first.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CliError(Exit.USAGE, f"{first}: it is not UTF-8") from None
    except OSError as error:
        raise CliError(Exit.NOT_FOUND, f"{first}: {error.strerror}") from None
    if not source:
        raise CliError(Exit.USAGE, f"{first}: it is empty")
    return {"source": source, "file": first.name, "folder": str(first.absolute().parent)}


def _program(name: str, hint: str = "") -> str:
    found = shutil.which(name)
    if found is None and os.path.isdir(name):
        raise CliError(Exit.USAGE, f"{name}: it is a folder", hint)
    if found is None and os.path.dirname(name) and os.path.exists(name):
        raise CliError(
            Exit.USAGE, f"{name}: it cannot be executed", hint or f"`chmod +x {name}`, if it is a program"
        )
    if found is None:
        raise CliError(Exit.NOT_FOUND, f"{name}: no such program", hint)
    return os.path.abspath(found)


@app.command()
def deploy(
    name: Name,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py | -- PROGRAM [ARGUMENT ...]",
            help="A file with handle(request), or a program that speaks HTTP on $PORT",
        ),
    ],
    replicas: Annotated[str, typer.Option(metavar="LEAST..MOST", help="How many processes it has")] = "0..4",
    idle: Annotated[
        float, typer.Option(metavar="SECONDS", help="After which a process that is not needed ends")
    ] = 60.0,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long an invocation may run")] = 60.0,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long an invocation may wait")] = 60.0,
    start: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a process may take to start")
    ] = 60.0,
    queue: Annotated[int, typer.Option(metavar="N", help="Invocations that may wait")] = 100,
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="Invocations at once in one process, for programs")
    ] = 1,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Host memory of a process; 0: half of the machine's")
    ] = "0",
    body: Annotated[
        str, typer.Option(metavar="SIZE", help="How large a request's body, and an answer, may be")
    ] = "16MiB",
    gpu_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="GPU memory of a process; 0: not said")
    ] = "0",
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs of a process; 0: one, when it asks")] = 0,
    weight: Annotated[float, typer.Option(metavar="X", help="Its share beside other functions")] = 1.0,
    cancel: Annotated[
        str,
        typer.Option(
            metavar="tell|kill", help="What a caller that has gone means: its process is told, or ended too"
        ),
    ] = "tell",
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --cancel kill: how long it has to end")
    ] = 1.0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable of its processes; may be repeated"),
    ] = None,
    python: Annotated[str, typer.Option(metavar="FILE", help="The interpreter; none: the server's own")] = "",
    server: Server = None,
    token_file: Token = None,
    as_json: Json = False,
) -> None:
    """Deploy a function, or its next revision."""
    least, most = _range(replicas)
    said = {
        **_what(what),
        "environment": _variables(env or []),
        "python": python and _program(python),
        "least": least,
        "most": most,
        "idle": idle,
        "timeout": timeout,
        "wait": wait,
        "start": start,
        "queue": queue,
        "concurrency": concurrency,
        "memory": _size(memory),
        "body": _size(body),
        "gpu_memory": _size(gpu_memory),
        "gpus": gpus,
        "weight": weight,
        "cancel": cancel,
        "grace": grace,
    }
    patience = (min(most, REPLICAS_MOST) + 1) * max(start, 0.0) + START_MARGIN  # one after the other
    client = _client(server, token_file, min(PATIENCE_MOST, patience))
    answer = client.json("PUT", f"/system/functions/{_path(name)}", said)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(f"{name} (revision {answer['function']['revision']}): {client.url}/function/{name}")


def _path(name: str) -> str:
    from ..functions.deployment import is_name

    if not is_name(name):
        raise CliError(Exit.USAGE, f"{name!r} is no name of a function", "1 to 63 of a to z, 0 to 9 and -")
    return name


@app.command("list")
def list_functions(
    server: Server = None, token_file: Token = None, as_json: Json = False, timeout: Timeout = 10.0
) -> None:
    """Functions, their processes and what waits for them."""
    answer = _client(server, token_file, timeout).json("GET", "/system/functions")
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    rows = [
        (
            function["name"],
            str(function["revision"]),
            function["kind"],
            f"{len(function['replicas'])} of {function['least']}..{function['most']}",
            str(function["running"]),
            str(function["waiting"]),
            str(function["invocations"]["ok"]),
            str(function["invocations"]["failed"]),
        )
        for function in answer["functions"]
    ]
    print_table(("function", "revision", "kind", "replicas", "running", "waiting", "ok", "failed"), rows)


@app.command()
def show(
    name: Name,
    server: Server = None,
    token_file: Token = None,
    as_json: Json = False,
    timeout: Timeout = 10.0,
) -> None:
    """One function: what was deployed, and its processes."""
    answer = _client(server, token_file, timeout).json("GET", f"/system/functions/{_path(name)}")
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    function = answer["function"]
    replicas = function.pop("replicas")
    print_table(("setting", "value"), [(key, _text(value)) for key, value in function.items()])
    print()
    rows = [
        (
            str(one["replica"]),
            str(one["pid"]),
            one["state"],
            str(one["revision"]),
            f"{one['age_seconds']:.0f} s",
            format_size(one["memory"]),
            _gpu_of(one),
        )
        for one in replicas
    ]
    print_table(("replica", "pid", "state", "revision", "age", "memory", "gpu"), rows)


def _gpu_of(replica: dict[str, Any]) -> str:
    """On which GPU its memory is, or was; empty: on none."""
    if "gpu" not in replica:
        return ""
    return str(replica["gpu"]) if replica["resident"] else f"{replica['gpu']}, away"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={content}" for key, content in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command()
def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And what comes, until interrupted")] = False,
    tail: Annotated[int, typer.Option(min=0, metavar="N", help="The last lines")] = 100,
    server: Server = None,
    token_file: Token = None,
    as_json: Json = False,
) -> None:
    """What the function's processes have written."""
    client = _client(server, token_file, 3600.0 * 24 if follow else 10.0)
    path = f"/system/functions/{_path(name)}/logs?tail={tail}&follow={int(follow)}"
    with client.ask("GET", path) as answer:
        if answer.status >= 400:
            check(answer.status, client.read(answer))
        for line in _lines(answer):
            said = json.loads(line)
            if as_json:
                print(line.decode(), flush=True)
            else:
                print(f"{said['replica']:>4} {said['stream']:<6} {said['text']}", flush=True)


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    """Lines as they come. Raises CliError where the rest does not."""
    held = b""
    broken = CliError(Exit.UNREACHABLE, "the log broke off: the function server has gone")
    for part in _parts(answer, broken):
        *lines, held = (held + part).split(b"\n")
        yield from lines


@app.command()
def remove(
    name: Name,
    yes: Yes = False,
    server: Server = None,
    token_file: Token = None,
    timeout: Timeout = 600.0,
) -> None:
    """Remove a function, after what is being deployed of it. What runs ends, what waits is refused."""
    path = f"/system/functions/{_path(name)}"
    confirm(f"Remove the function {name}?", yes)
    _client(server, token_file, timeout).json("DELETE", path)


@app.command()
def invoke(
    name: Name,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="TEXT|@FILE|-",
            help="The body: this text, what FILE has, or -: what stdin has",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="Of the request; may be repeated"),
    ] = None,
    method: Annotated[str, typer.Option("--method", "-X", metavar="METHOD", help="Of HTTP")] = "POST",
    server: Server = None,
    token_file: Token = None,
    as_json: Json = False,
    timeout: Timeout = 600.0,
) -> None:
    """Invoke a function and print its answer."""
    if not TOKEN.fullmatch(method):
        raise typer.BadParameter(f"--method {method!r}: it is no method of HTTP")
    headers = dict(map(_header, header or []))
    client = _client(server, token_file, timeout)
    broken = CliError(Exit.FAILED, "the answer broke off", f"`gpuferry functions logs {name}` says why")
    with client.ask(method, f"/function/{_path(name)}", _body(data), headers) as answer:
        if as_json:
            body = b"".join(_parts(answer, broken))
            said = {
                "schema": SCHEMA,
                "status": answer.status,
                "ran": answer.headers.get("X-Gpuferry-Ran", "unknown"),
                "start": answer.headers.get("X-Gpuferry-Start"),
                "headers": dict(answer.headers.items()),
                "body": body.decode(errors="replace"),
            }
            print(json.dumps(said, indent=2))
        elif "X-Gpuferry-Error" in answer.headers or "X-Gpuferry-Ran" not in answer.headers:
            check(answer.status, client.read(answer))  # it is not the function's
        else:
            for part in _parts(answer, broken):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
        if answer.status >= 400:
            raise typer.Exit(Exit.FAILED)


def _header(said: str) -> tuple[str, bytes]:
    name, colon, value = said.partition(":")
    if not colon or not TOKEN.fullmatch(name.strip()) or not value.replace("\t", " ").isprintable():
        raise typer.BadParameter(f"--header {said!r}: NAME:VALUE is wanted")
    return name.strip(), value.strip().encode()


def _parts(answer: HTTPResponse, broken: CliError) -> Iterator[bytes]:
    """The answer as it comes. Raises `broken` where the rest does not."""
    try:
        while part := answer.read1(PART):
            yield part
    except (IncompleteRead, OSError):
        raise broken from None


def _body(data: str | None) -> bytes | None:
    if data is None:
        return None
    if data == "-":
        return sys.stdin.buffer.read()
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise CliError(Exit.NOT_FOUND, f"{data[1:]}: {error.strerror}") from None


@app.command()
def page() -> None:
    """The link to the server's page, with its key."""
    from ..functions.key import page_key

    address, token = locate(None, None)
    if not token:
        raise CliError(Exit.DENIED, f"no token for {address}", "set GPUFERRY_FUNCTIONS_TOKEN_FILE")
    print(f"{Client(address, token, 0.0).url}/#{page_key(token.encode())}")
