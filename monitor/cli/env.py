"""What `gpuferry run` would set, for a shell or a script."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from gpuferry.guest import launch, paths

from . import reach
from .errors import Exit
from .run import add_gpus_option, add_portion_options, portion_settings


def main(arguments: list[str]) -> int:
    """Prints export lines; `--preload` only the library, for which no monitor is needed."""
    options = argparse.ArgumentParser(prog="gpuferry env", description=__doc__, allow_abbrev=False)
    options.add_argument(
        "--monitor", metavar="ADDRESS", help="HOST:PORT, tls://HOST:PORT or unix:PATH [GPUFERRY_MONITOR]"
    )
    options.add_argument(
        "--token-file", metavar="FILE", help="the token [GPUFERRY_TOKEN, GPUFERRY_TOKEN_FILE]"
    )
    add_gpus_option(options)
    add_portion_options(options)
    reach.add_tls_option(options)
    form = options.add_mutually_exclusive_group()
    form.add_argument("--preload", action="store_true", help="only the path for LD_PRELOAD")
    form.add_argument("--json", action="store_true", help="an object instead of export lines")
    chosen = options.parse_args(arguments)
    portions = portion_settings(options, chosen)
    library = paths.guest_library()
    if chosen.preload:
        print(paths.front(library))
        return Exit.OK
    reach.take_tls_option(chosen)
    settings = launch.guest_settings(reach.locate(chosen.monitor, chosen.token_file), gpus=chosen.gpus)
    settings |= portions
    paths_here = {name: os.environ[name] for name in launch.SEARCHED if name in os.environ}
    injected = launch.inject(paths_here, library) | settings
    if chosen.json:
        import json

        print(json.dumps(injected, indent=2))
    elif sys.stdout:
        lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in injected.items())
        sys.stdout.buffer.write(os.fsencode(lines))  # names of folders need not be text
    return Exit.OK
