"""`gpuferry`: the verbs that start programs go straight to them, because every import delays the program."""

from __future__ import annotations

import sys
from importlib import import_module

from gpuferry.guest.paths import LibraryMissing

from .errors import CliError, Exit, say

QUICK = {"run", "sim", "env"}  # standard library only


def main() -> int:
    """The console script."""
    arguments = sys.argv[1:]
    try:
        if arguments and arguments[0] in QUICK:
            return int(import_module(f".{arguments[0]}", __package__).main(arguments[1:]))
        from .app import main as full

        return full(arguments)
    except CliError as error:
        say(error.what, error.hint)
        return error.status
    except LibraryMissing as error:
        say(str(error), "build it with `make build`, or install a wheel")
        return Exit.FAILED
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
