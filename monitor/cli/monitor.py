"""`gpuferry monitor`: from options to a running daemon."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from gpuferry.guest.endpoint import runtime_directory
from gpuferry.guest.units import parse_size

from .errors import CliError, Exit

SUN_PATH_MOST = 107


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise CliError(Exit.USAGE, f"{option}: {error}") from None


def _check_path(path: str) -> None:
    if len(os.fsencode(path)) > SUN_PATH_MOST:
        raise CliError(
            Exit.USAGE,
            f"{path}: a Unix socket's path may have {SUN_PATH_MOST} bytes",
            "set GPUFERRY_RUNTIME_DIR to a folder with a shorter name",
        )


def _server_command() -> tuple[str, ...]:
    """GPUFERRY_APISERVER runs API servers under a tool: `valgrind python -m gpuferry.apiserver`."""
    chosen = os.environ.get("GPUFERRY_APISERVER")
    return tuple(shlex.split(chosen)) if chosen else (sys.executable, "-m", "gpuferry.apiserver")


def run_monitor(
    *,
    listen: str,
    socket: str | None,
    control: str | None,
    pool: int,
    device: str | None,
    memory: str,
    headroom: str | None,
    token_file: str | None,
    max_wait: float,
    handshake_timeout: float,
    grace: float,
    log_level: str,
    parent_fd: int | None,
) -> None:
    """Runs until told to stop."""
    try:
        from .. import logs
        from ..config import Config, ConfigError, check_exposure, choose_token
        from ..daemon import default_control, default_socket, run
        from ..device import choose
    except ModuleNotFoundError as error:
        raise CliError(
            Exit.FAILED, f"{error.name} is not installed", "a monitor needs `pip install 'gpuferry[server]'`"
        ) from None

    if log_level not in logs.LEVELS:
        raise CliError(Exit.USAGE, f"--log-level {log_level}: choose one of {', '.join(logs.LEVELS)}")
    logs.configure(log_level)
    # For API servers, which inherit it: what they do when all is well, the monitor logs too.
    os.environ["GPUFERRY_LOG_LEVEL"] = "info" if log_level == "debug" else "error"
    runtime = Path(runtime_directory())
    unix = (
        default_socket(runtime) if socket is None else None if socket == "none" else os.path.abspath(socket)
    )
    tcp = None if listen == "none" else listen
    control = control or default_control(runtime)
    if not (unix or tcp):
        raise CliError(Exit.USAGE, "--listen none and --socket none leave no way in")
    for path in (unix, control.removeprefix("unix:") if control.startswith("unix:") else None):
        if path:
            _check_path(path)
    try:
        token, given = choose_token(token_file)
        check_exposure(tcp, control, given)
        simulated, devices = choose(device)
        run(
            Config(
                runtime=runtime,
                token=token,
                simulated=simulated,
                devices=devices,
                control=control,
                listen=tcp,
                socket=unix,
                pool=pool,
                memory=_size("--memory", memory),
                headroom=None if headroom is None else _size("--headroom", headroom),
                max_wait=max_wait,
                handshake_timeout=handshake_timeout,
                grace=grace,
                server_command=_server_command(),
                status_descriptor=parent_fd,
            )
        )
    except ConfigError as error:
        raise CliError(Exit.FAILED, str(error)) from None
