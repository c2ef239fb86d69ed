"""`gpuferry config`: what is set, and where each setting comes from."""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import Annotated, Any

import typer

from ..settings.options import Option, options_of
from ..settings.sources import Settings, chosen_files, load, may_exist
from .errors import CliError, Exit
from .flags import ConfigFile
from .parameters import Json
from .tables import print_table

SCHEMA = "gpuferry.config/1"
HIDDEN = "(hidden)"
_TABLES = {
    "functions": ("gpuferry.monitor.functions.config", "FunctionsOptions"),
    "monitor": ("gpuferry.monitor.settings.monitor_options", "MonitorOptions"),
    "registry": ("gpuferry.monitor.cluster.registry.config", "RegistryOptions"),
}
_SECRETS = {"token": "GPUFERRY_TOKEN", "cluster_key": "GPUFERRY_CLUSTER_KEY"}  # a variable's, never shown

config_app = typer.Typer(help="Settings of monitor, registry and functions.", no_args_is_help=True)
Program = Annotated[str, typer.Argument(metavar="|".join(_TABLES), help="Whose settings")]


def _table(program: str) -> type:
    if program not in _TABLES:
        raise CliError(Exit.USAGE, f"{program}: no such program", f"choose one of {', '.join(_TABLES)}")
    module, name = _TABLES[program]
    found: type = getattr(import_module(module), name)
    return found


def _settings(program: str, file: str | None) -> list[tuple[Option, Any, str]]:
    """Each setting that users may know of, its value, and where that comes from."""
    table = _table(program)
    found: Settings[Any] = load(table, program, {}, file)
    return [
        (option, getattr(found.values, option.name), found.sources[option.name])
        for option in options_of(table, program)
        if not option.hidden
    ]


def _secrets() -> list[dict[str, str]]:
    return [
        {"name": name, "value": HIDDEN, "source": f"environment variable {variable}", "variable": variable}
        for name, variable in _SECRETS.items()
        if os.environ.get(variable)
    ]


@config_app.command()
def show(program: Program = "monitor", config: ConfigFile = None, as_json: Json = False) -> None:
    """Print each setting, its value, and where that comes from."""
    settings, secrets = _settings(program, config), _secrets()
    if as_json:
        entries = [
            {
                "name": option.name,
                "value": value,
                "source": source,
                "flag": option.flag,
                "variable": option.variable,
            }
            for option, value, source in settings
        ]
        print(json.dumps({"schema": SCHEMA, "program": program, "settings": entries + secrets}, indent=2))
    else:
        rows = [(option.name, option.kind.show(value), source) for option, value, source in settings]
        rows += [(entry["name"], entry["value"], entry["source"]) for entry in secrets]
        print_table(("setting", "value", "source"), rows)


@config_app.command()
def path(program: Program = "monitor", config: ConfigFile = None, as_json: Json = False) -> None:
    """Print the files that are read, in order: a later one wins."""
    _table(program)
    candidates, _ = chosen_files(program, config)
    if as_json:
        files = [{"path": str(file), "exists": may_exist(file)} for file in candidates]
        print(json.dumps({"schema": SCHEMA, "program": program, "files": files}, indent=2))
        return
    for file in candidates:
        print(file if may_exist(file) else f"{file} (does not exist)")
