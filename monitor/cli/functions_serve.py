"""`gpuferry functions serve`: from options to a running function server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress

from gpuferry.guest.endpoint import NoMonitor, find, first_line, read_token

from ..settings.errors import ConfigError
from ..settings.sources import fields_of, load


def run_functions(flags: Mapping[str, str | None], file: str | None) -> None:
    """Run a function server with these settings until it is told to stop. Raises ConfigError."""
    from ..functions.config import FunctionsConfig, FunctionsOptions
    from ..functions.daemon import run
    from ..service import logs
    from ..settings.folders import state_directory
    from ..settings.monitor import check_clear, is_loopback
    from .checks.secrecy import warn_of_exposed
    from .functions_client import runtime

    chosen = load(FunctionsOptions, "functions", flags, file).values
    logs.configure(chosen.log_level, chosen.log_format)
    check_clear("--listen", chosen.listen, bool(chosen.tls_cert), chosen.insecure)
    token, given = _token(chosen.token_file)
    if not (given or is_loopback(chosen.listen)):
        raise ConfigError(
            f"{chosen.listen} can be reached from other machines, and no token was given: "
            "whoever has it runs code here",
            "`gpuferry token new > FILE`, then --token-file FILE, or listen on 127.0.0.1",
        )
    logs.hide(token.decode())
    warn_of_exposed(chosen)
    config = FunctionsConfig(
        **fields_of(chosen),
        runtime=runtime(),
        folder=state_directory(chosen.state) / "functions",
        token=token,
    )
    if config.driver == "guest":
        with suppress(NoMonitor, OSError):  # it may come later
            find(config.monitor)  # which waits for one that has just been started
    run(config)


def _token(file: str | None) -> tuple[bytes, bool]:
    """The token, and whether someone gave it."""
    from ..settings.tokens import check_strength

    try:
        given = read_token(file) if file else first_line(os.environ.get("GPUFERRY_FUNCTIONS_TOKEN", ""))
    except OSError as error:
        raise ConfigError(f"token file {file}: {error.strerror}") from None
    if file and not given:
        raise ConfigError(f"token file {file}: its first line is empty")
    if given:
        check_strength("the token of the function server", given)
    return (given.encode(), True) if given else (secrets.token_hex(32).encode(), False)
