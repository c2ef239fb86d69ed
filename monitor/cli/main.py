"""`gpuferry`: the verbs that start programs go straight to them, because every import delays the program."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from gpuferry.guest.paths import LibraryMissing

from .errors import CliError, Exit, reason, say
from .quick import QUICK, VERSION, help_without_extras, lacks

DAEMONS = {"monitor", "registry", "apiserver"}  # whose log is the place for a traceback
SERVES = ["functions", "serve"]  # a daemon too
LAUNCHERS = {"run", "sim", "env"}  # a program inherits their environment
# gRPC accepts TLS 1.2 too, and has no setting against that. With ciphers that need a secret which nobody has,
# 1.2 never comes about; those of 1.3 are others.
TLS_1_3_ONLY = {"GRPC_SSL_CIPHER_SUITES": "ECDHE-PSK-CHACHA20-POLY1305"}


def main() -> int:
    """The console script. Returns the exit status."""
    arguments = sys.argv[1:]
    if not (arguments and arguments[0] in LAUNCHERS):  # a program has them as they are
        _open_standard_streams()
    if arguments[:1] == [VERSION]:
        arguments[0] = "version"
    if arguments[:1] and (arguments[0] in DAEMONS or arguments[:2] == SERVES):
        # They fork to execute something else. gRPC would start its threads in the child meanwhile, and such a
        # child died of them now and then. It reads this when it is imported.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        status = _run(arguments)
        if sys.stdout:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        pass  # who reads our output has enough, as in `gpuferry status | head -1`
    except Exception as error:
        daemon = arguments[:1] and (arguments[0] in DAEMONS or arguments[:2] == SERVES)
        if "GPUFERRY_DEBUG" in os.environ or daemon:
            raise
        what = reason(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        say(what, "GPUFERRY_DEBUG=1 shows where")
    # What could not be written would be tried again at exit, with another message.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.FAILED


def _open_standard_streams() -> None:
    """Have all three, to nowhere where one is closed. Else the next socket would have its number, Python has
    None for it, and a daemon that was started without them would end without a word.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)  # for children, too, if it was not the least free number
            os.set_inheritable(number, True)
            if nowhere != number:
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    if sys.stdout and sys.stdout.errors == "strict":  # what a terminal of another alphabet has no letter for
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def _run(arguments: list[str]) -> int:
    try:
        if not (arguments and arguments[0] in LAUNCHERS):
            os.environ |= TLS_1_3_ONLY  # gRPC reads both when it is imported
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log lines would come between ours
        if arguments and arguments[0] in QUICK:
            return int(import_module(f".{arguments[0]}", __package__).main(arguments[1:]))
        return _full(arguments)
    except SystemExit as leaving:  # of argparse and typer, whose help is output too
        return leaving.code if isinstance(leaving.code, int) else Exit.FAILED if leaving.code else Exit.OK
    except CliError as error:
        say(error.what, error.hint)
        return error.status
    except LibraryMissing as error:
        say(str(error), "build it with `make build`, or install a wheel")
        return Exit.FAILED
    except KeyboardInterrupt:
        return 130


def _full(arguments: list[str]) -> int:
    try:
        from .app import main as full
    except ImportError as error:
        return help_without_extras(arguments, _package(error))
    try:
        return full(arguments)
    except ImportError as error:
        raise lacks(arguments[0], _package(error)) from None


def _package(error: ImportError) -> str:
    """What is not installed, or not in a version that will do. A part of ours that is not there is a defect,
    and stays one.
    """
    name = error.name or ""
    if not name or name.partition(".")[0] == "gpuferry":
        raise error
    return name


if __name__ == "__main__":
    sys.exit(main())
