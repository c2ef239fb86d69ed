"""What `gpuferry run` would set, for a shell or a script."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from gpuferry.guest import launch, paths

from . import reach
from .errors import Exit
from .run import add_session_options, demands, settings_at


def main(arguments: list[str]) -> int:
    """Prints export lines; `--preload` only the library, for which no monitor is needed."""
    options = argparse.ArgumentParser(prog="gpuferry env", description=__doc__, allow_abbrev=False)
    add_session_options(options)
    form = options.add_mutually_exclusive_group()
    form.add_argument("--preload", action="store_true", help="only the path for LD_PRELOAD")
    form.add_argument("--json", action="store_true", help="an object instead of export lines")
    chosen = options.parse_args(arguments)
    settings = demands(options, chosen)
    library = paths.guest_library()
    if chosen.preload:
        print(paths.front(library))
        return Exit.OK
    reach.take_tls_option(chosen)
    settings |= settings_at(reach.locate(chosen.monitor, chosen.token_file), chosen)
    paths_here = {name: os.environ[name] for name in launch.SEARCHED if name in os.environ}
    injected = launch.inject(paths_here, library) | settings
    if chosen.json:
        import json

        print(json.dumps(injected, indent=2))
    elif sys.stdout:
        lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in injected.items())
        sys.stdout.buffer.write(os.fsencode(lines))  # names of folders need not be text
    return Exit.OK
