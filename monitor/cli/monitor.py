"""`gpuferry monitor`: from options to a running daemon."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from gpuferry.guest.endpoint import runtime_directory

from ..settings.monitor_options import MonitorOptions
from ..settings.sources import fields_of, load
from .errors import CliError, Exit

SUN_PATH_MOST = 107


def _check_path(path: str) -> None:
    if len(os.fsencode(path)) > SUN_PATH_MOST:
        raise CliError(
            Exit.USAGE,
            f"{path}: a Unix socket's path may have {SUN_PATH_MOST} bytes",
            "set GPUFERRY_RUNTIME_DIR to a folder with a shorter name",
        )


def _command(variable: str, module: str) -> tuple[str, ...]:
    """GPUFERRY_APISERVER runs API servers under a tool: `valgrind python -m gpuferry.apiserver`."""
    chosen = os.environ.get(variable)
    if not chosen:
        return sys.executable, "-m", module
    try:
        return tuple(shlex.split(chosen))
    except ValueError as error:  # quotation marks that do not end
        raise CliError(Exit.USAGE, f"environment variable {variable}: {error}") from None


def run_monitor(flags: Mapping[str, str | None], file: str | None, parent_fd: int | None) -> None:
    """Run a monitor with these settings until it is told to stop. Raises CliError, ConfigError."""
    import structlog

    from ..cluster.membership import lets_somebody_in
    from ..daemon import run
    from ..devices.choice import choose
    from ..service import logs
    from ..settings.monitor import (
        Config,
        check_exposure,
        check_mps,
        check_turns,
        choose_token,
        without_effect,
    )
    from .checks.secrecy import warn_of_exposed

    settings = load(MonitorOptions, "monitor", flags, file)
    chosen = settings.values
    logs.configure(chosen.log_level, chosen.log_format)
    # For API servers, which inherit it: what they do when all is well, the monitor logs too.
    os.environ["GPUFERRY_LOG_LEVEL"] = "info" if chosen.log_level == "debug" else "error"
    if not (chosen.socket or chosen.listen):
        raise CliError(Exit.USAGE, "--listen none and --socket none leave no way in")
    for path in (chosen.socket, chosen.control.removeprefix("unix:")):
        if path:
            _check_path(path)
    token, given = choose_token(chosen.token_file)
    logs.hide(token.decode())
    warn_of_exposed(chosen)
    has_tenants = lets_somebody_in(chosen)
    check_exposure(chosen, given or has_tenants)
    check_turns(chosen)
    for setting in without_effect(chosen):
        structlog.get_logger().warning("a setting is ignored", reason=setting)
    machine = choose(chosen.device)
    check_mps(chosen, machine.simulated, has_tenants)
    run(
        Config(
            **fields_of(chosen),
            runtime=Path(runtime_directory()),
            token=token,
            simulated=machine.simulated,
            devices=machine.devices,
            device_names=machine.names,
            server_command=_command("GPUFERRY_APISERVER", "gpuferry.apiserver"),
            keeper_command=_command("GPUFERRY_KEEPER", "gpuferry.apiserver.keeper"),
            own_command=bool(os.environ.get("GPUFERRY_APISERVER") or os.environ.get("GPUFERRY_KEEPER")),
            has_tenants=has_tenants,
            status_descriptor=parent_fd,
        )
    )
