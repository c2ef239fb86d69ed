"""The verbs that are not in a hurry: typer, rich, gRPC, each imported when needed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from ..cluster.registry.config import RegistryOptions
from ..settings.errors import ConfigError, UsageError
from ..settings.monitor_options import MonitorOptions
from .config import config_app
from .errors import CliError, Exit
from .flags import CommandByTopic, ConfigFile, Flags, with_options
from .functions import app as functions_app
from .parameters import SECONDS_MOST, Control, Json, Number, Timeout, TokenFile
from .quick import QUICK, VERSION
from .server import app as server_app
from .service import service_app
from .session import app as session_app
from .simulate import simulate
from .tenant import app as tenant_app
from .tls import app as tls_app
from .token import app as token_app

SETTINGS: dict[str, Any] = {
    "name": "gpuferry",
    "help": "Run unmodified CUDA programs on GPUs that are elsewhere.",
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(**SETTINGS)


@app.callback()
def options(version: Annotated[bool, typer.Option(VERSION, help=QUICK["version"])] = False) -> None:
    """Run unmodified CUDA programs on GPUs that are elsewhere."""
    if version:  # behind another option; `cli.main` sees it in the first place
        raise typer.Exit(import_module(".version", __package__).main([]))


def _delegate(name: str, summary: str) -> None:
    """The quick verbs appear in the help; `cli.main` usually runs them before typer is even imported."""

    def verb(context: typer.Context) -> None:
        raise typer.Exit(import_module(f".{name}", __package__).main(context.args))

    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=summary, context_settings=settings)(verb)


for _name, _summary in QUICK.items():
    _delegate(_name, _summary)


@app.command(cls=CommandByTopic)
@with_options(MonitorOptions, "monitor")
def monitor(
    flags: Flags,
    config: ConfigFile = None,
    parent_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """A GPU server: keeps API servers ready, gives each guest one."""
    from .monitor import run_monitor

    run_monitor(flags, config, parent_fd)


@app.command(cls=CommandByTopic)
@with_options(RegistryOptions, "registry")
def registry(flags: Flags, config: ConfigFile = None) -> None:
    """Once per cluster: sends each guest to one of the GPU servers."""
    from .registry import run_registry

    run_registry(flags, config)


@app.command()
def apiserver(
    device: Annotated[int, typer.Option(metavar="N", help="Ordinal of the device")],
    control_fd: Annotated[int, typer.Option(metavar="FD", help="Socket to the monitor")],
) -> None:
    """One API server in the foreground; monitors start their own."""
    try:
        os.fstat(control_fd)
    except OSError:
        hint = "the monitor starts API servers by itself: `gpuferry monitor`"
        raise CliError(Exit.USAGE, f"--control-fd {control_fd}: no such descriptor", hint) from None
    arguments = ["--device", str(device), "--control-fd", str(control_fd)]
    os.execv(sys.executable, [sys.executable, "-m", "gpuferry.apiserver", *arguments])


@app.command()
def status(
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until interrupted")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=SECONDS_MOST, metavar="SECONDS", help="With --watch")
    ] = 1.0,
    timeout: Timeout = 5.0,
) -> None:
    """Devices, API servers, sessions and the queue of a monitor."""
    from .status import show_status

    show_status(control, token_file, as_json, interval if watch else None, timeout)


@app.command()
def top(
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=SECONDS_MOST, metavar="SECONDS", help="Between two looks")
    ] = 1.0,
    timeout: Timeout = 5.0,
) -> None:
    """The monitor's live page in a terminal; Ctrl-C ends it."""
    from .top import show_top

    show_top(control, token_file, as_json, interval, timeout)


@app.command()
def smi(
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
    timeout: Timeout = 5.0,
) -> None:
    """The GPUs and who uses them, in the manner of nvidia-smi."""
    from .smi import show_smi

    show_smi(control, token_file, as_json, timeout)


@app.command()
def page() -> None:
    """The link to this machine's page, with the key that opens it. The key can only read."""
    from .page import show_page

    show_page()


@app.command()
def migrate(
    session: Number,
    to: Annotated[
        str,
        typer.Option("--to", metavar="gpu:N[,N...]|gpu:any|SERVER", help="Other GPUs, or another GPU server"),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            metavar="stop|precopy|auto",
            help="Copy while the program waits, or most of it before",
        ),
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it could begin")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, max=SECONDS_MOST, metavar="SECONDS", help="Then it is given up; 0: never")
    ] = 0.0,
    control: Control = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Move a session while its program runs. It notices nothing but a pause."""
    from . import migrate as verb

    if strategy not in ("stop", "precopy", "auto"):
        raise typer.BadParameter(f"--strategy {strategy!r}: choose stop, precopy or auto")
    verb.migrate(session, to, strategy, dry_run, timeout, control, token_file, as_json)


app.command()(simulate)
app.add_typer(config_app, name="config")
app.add_typer(functions_app, name="functions")
app.add_typer(service_app, name="service")
app.add_typer(server_app, name="server")
app.add_typer(session_app, name="session")
app.add_typer(tls_app, name="tls")
app.add_typer(tenant_app, name="tenant")
app.add_typer(token_app, name="token")


@app.command()
def completion(shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """A script for your shell: `eval "$(gpuferry completion bash)"`."""
    if shell not in ("bash", "zsh", "fish"):
        raise typer.BadParameter(f"{shell!r}: choose bash, zsh or fish")
    os.environ["_GPUFERRY_COMPLETE"] = f"source_{shell}"
    app([], prog_name="gpuferry")


def _only(verb: str) -> typer.Typer:
    """The app with one of its verbs: typer prepares the options of all that it has."""
    one = typer.Typer(**SETTINGS)
    one.callback()(lambda: None)  # with a single command it would itself be that command
    one.registered_commands = [each for each in app.registered_commands if _verb_of(each) == verb]
    one.registered_groups = [each for each in app.registered_groups if each.name == verb]
    return one if one.registered_commands or one.registered_groups else app


def _verb_of(command: CommandInfo) -> str:
    assert command.callback
    return command.name or get_command_name(command.callback.__name__)


def main(arguments: list[str]) -> int:
    """Runs one verb; typer reports wrong usage itself."""
    try:
        _only(arguments[0] if arguments else "")(arguments, prog_name="gpuferry")
    except ConfigError as error:
        status = Exit.USAGE if isinstance(error, UsageError) else Exit.FAILED
        raise CliError(status, str(error), error.hint) from None
    return Exit.OK
