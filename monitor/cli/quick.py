"""The verbs that need the base installation alone, and what to install for the others. Imports the standard
library only.
"""

from __future__ import annotations

from importlib import import_module

from .errors import CliError, Exit

QUICK = {
    "run": "Run a program on a GPU elsewhere, or with a private monitor",
    "sim": "Run a program natively on the simulated device",
    "env": "Print what `run` sets in the environment",
    "doctor": "Check everything that is needed. Says what to do where it is missing",
    "version": "The version, and what it speaks",
}
_EXTRAS = {
    "monitor": "server",
    "apiserver": "server",
    "registry": "monitor",
    "functions": "monitor",
    "simulate": "simulate",
}
_HELP = {"-h", "--help"}
VERSION = "--version"  # what people type at any program; the verb says more


def lacks(verb: str, package: str) -> CliError:
    """The error of a verb whose package is not installed."""
    extra = _EXTRAS.get(verb, "cli")
    return CliError(
        Exit.FAILED,
        f"`gpuferry {verb}` needs the package {package}, which is not installed, or too old",
        f"pip install 'gpuferry[{extra}]'",
    )


def help_without_extras(arguments: list[str], package: str) -> int:
    """What `gpuferry` and `gpuferry --help` say where only the base is installed: the verbs that there are.
    Raises CliError for any other verb.
    """
    if arguments and arguments[0] not in _HELP:
        raise lacks(arguments[0], package)
    print(
        "Usage: gpuferry COMMAND [ARGUMENT ...]\n\nRun unmodified CUDA programs on GPUs that are elsewhere.\n"
    )
    for verb, summary in QUICK.items():
        print(f"  {verb:8} {summary}.")
    print(f"\n  {VERSION}  {QUICK['version']}.")
    print("\nThe commands of operators and servers: pip install 'gpuferry[cli]', 'gpuferry[server]'.")
    return Exit.OK if arguments else Exit.USAGE


def not_for_servers() -> str:
    """Why this installation cannot do what servers do: a package is not there, or is the application's, of
    another version. Empty: it can.
    """
    try:
        for module in (f"{__package__}.client", f"{__package__}.checks.settings"):
            import_module(module)
    except Exception as error:  # protobuf and gRPC have errors of their own for versions that do not fit
        first = str(error).partition("\n")[0]
        return f"{type(error).__name__}: {first}"
    return ""
