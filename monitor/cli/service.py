"""`gpuferry service`: the systemd units, with the paths of this installation in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from .errors import CliError, Exit, say

SOURCE = Path(__file__).parents[1] / "service" / "systemd"
PACKAGED = "/opt/gpuferry/bin/gpuferry"
NAMES = ("monitor", "registry", "functions")
HOMES = ("/home", "/root", "/run/user")  # of which ProtectHome leaves nothing to be seen
PLAIN = re.compile(r"[A-Za-z0-9/._+@:%-]+")

service_app = typer.Typer(help="systemd units of monitor, registry and functions.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="|".join(NAMES))]


def _unit(name: str) -> str:
    if name not in NAMES:
        raise CliError(Exit.USAGE, f"{name}: no such service", f"choose one of {', '.join(NAMES)}")
    text = (SOURCE / f"gpuferry-{name}.service").read_text()
    return text.replace(PACKAGED, _quoted(str(_command())))


def _command() -> Path:
    """This command, as systemd is to start it: pip may have put it elsewhere than beside the interpreter."""
    called = Path(sys.argv[0])
    if called.name == Path(PACKAGED).name and called.is_file():
        return called.absolute()
    return Path(sys.executable).with_name(Path(PACKAGED).name)


def _quoted(path: str) -> str:
    """The path as a unit has it, where blanks and `%` mean something."""
    path = path.replace("%", "%%")
    if PLAIN.fullmatch(path):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _check_reach(text: str) -> None:
    """Say what would keep the service from its own command."""
    command = _command()
    if not command.is_file():
        raise CliError(Exit.FAILED, f"{command}: there is no such command", "call `gpuferry` by its path")
    if "ProtectHome=yes" in text and any(command.is_relative_to(folder) for folder in HOMES):
        say(
            f"{command} is in a home folder, and the unit has ProtectHome=yes: the service cannot start it",
            "install gpuferry elsewhere: `python3 -m venv /opt/gpuferry`, then pip there",
            "note: ",
        )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise CliError(
            Exit.DENIED if denied else Exit.FAILED,
            f"cannot write {path}: {error.strerror}",
            "system services are installed by root: `sudo gpuferry service install …`" if denied else "",
        ) from None
    say(f"wrote {path}")


def _call(*command: str) -> None:
    if not shutil.which(command[0]):
        raise CliError(Exit.FAILED, f"{command[0]} is not here", "use --root to only write the files")
    if (status := subprocess.run(command, check=False).returncode) != 0:
        raise CliError(Exit.FAILED, f"`{' '.join(command)}` ended with {status}")


@service_app.command()
def show(name: Name) -> None:
    """Print the unit."""
    print(_unit(name), end="")


@service_app.command()
def install(
    name: Name,
    now: Annotated[bool, typer.Option("--now", help="Enable it, and start it")] = False,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write below this folder, and run nothing")
    ] = None,
) -> None:
    """Write the unit and its user to /etc, and tell systemd."""
    text = _unit(name)
    _check_reach(text)
    base = root or Path("/")
    _write(base / f"etc/systemd/system/gpuferry-{name}.service", text)
    _write(base / "etc/sysusers.d/gpuferry.conf", (SOURCE / "gpuferry.conf").read_text())
    if root:
        return
    _call("systemd-sysusers", "/etc/sysusers.d/gpuferry.conf")
    _call("systemctl", "daemon-reload")
    if now:
        _call("systemctl", "enable", "--now", f"gpuferry-{name}.service")
