"""`gpuferry run`: becomes the program, with the guest library as its driver. Standard library only."""

from __future__ import annotations

import argparse
import os

from gpuferry.guest import endpoint, launch, portion
from gpuferry.guest.units import parse_size

from . import reach
from .errors import CliError, say

LIMITS = (
    ("--max-wait", "GPUFERRY_MAX_WAIT", "give up when no device is free within this time"),
    ("--wall-limit", "GPUFERRY_WALL_LIMIT", "how long the session may last"),
    ("--idle-limit", "GPUFERRY_IDLE_LIMIT", "how long it may make no CUDA call"),
)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> str:
    try:
        fine = float(text) > 0
    except ValueError:
        fine = False
    if not fine:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return text


def _gpus(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= launch.GPUS_MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs from 1 to {launch.GPUS_MOST}")
    return int(text)


def _share(text: str) -> str:
    try:
        portion.parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _label(text: str) -> str:
    try:
        return portion.check_label(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _wanted(text: str) -> str:
    try:
        return portion.check_wanted(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


PORTIONS = (
    ("--gpu-request", portion.REQUEST, "PART", _share, "part of a GPU's time that it is promised, as 0.3"),
    ("--gpu-limit", portion.LIMIT, "PART", _share, "part of a GPU's time that it may have at most"),
    ("--affinity", portion.AFFINITY, "LABEL", _label, "on the GPU of those who say the same"),
    ("--anti-affinity", portion.ANTI_AFFINITY, "LABEL", _label, "on no GPU where another one says the same"),
    ("--exclusive", portion.EXCLUSIVE, "LABEL", _label, "share a GPU only with those who say the same"),
)


def add_session_options(options: argparse.ArgumentParser) -> None:
    """Add where the session is to be, and what the program asks of it."""
    options.add_argument(
        "--monitor", metavar="ADDRESS", help="HOST:PORT, tls://HOST:PORT or unix:PATH [GPUFERRY_MONITOR]"
    )
    options.add_argument(
        "--memory",
        metavar="SIZE",
        type=_size,
        default=0,
        help="device memory to ask for, as 2GiB [GPUFERRY_MEMORY]",
    )
    options.add_argument(
        "--gpus",
        metavar="N",
        type=_gpus,
        default=0,
        help="how many GPUs of one GPU server the program gets [GPUFERRY_GPUS]",
    )
    for flag, variable, metavar, kind, what in PORTIONS:
        options.add_argument(flag, metavar=metavar, type=kind, dest=variable, help=f"{what} [{variable}]")
    options.add_argument(
        "--function", metavar="NAME", help="how this work is called in `gpuferry status` [GPUFERRY_FUNCTION]"
    )
    options.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=_wanted,
        action="append",
        default=[],
        help="only a GPU server or device with this label [GPUFERRY_LABELS]",
    )
    for flag, variable, what in LIMITS:
        options.add_argument(
            flag, metavar="SECONDS", type=_seconds, dest=variable, help=f"{what} [{variable}]"
        )
    options.add_argument(
        "--on-loss",
        choices=("error", "reconnect"),
        dest="GPUFERRY_ON_LOSS",
        help="what a lost connection means: each CUDA call fails (default), or the program connects again "
        "[GPUFERRY_ON_LOSS]",
    )
    options.add_argument(
        "--stats", metavar="FILE", help="write counts of driver calls there, as JSON [GPUFERRY_STATS]"
    )
    options.add_argument(
        "--token-file", metavar="FILE", help="the token [GPUFERRY_TOKEN, GPUFERRY_TOKEN_FILE]"
    )
    reach.add_tls_option(options)


def demands(options: argparse.ArgumentParser, chosen: argparse.Namespace) -> dict[str, str]:
    """What these options set for the guest library that is about the session, wherever it will be; ends the
    command if that makes no sense together with what the environment says.
    """
    portions = {name: value for _, name, *_ in PORTIONS if (value := getattr(chosen, name))}
    gpus = {"GPUFERRY_GPUS": str(chosen.gpus)} if chosen.gpus else {}
    try:
        portion.check_settings(os.environ | portions | gpus)
    except ValueError as error:
        options.error(str(error))
    names = (*(variable for _, variable, _ in LIMITS), "GPUFERRY_ON_LOSS")
    settings = portions | {name: value for name in names if (value := getattr(chosen, name))}
    return settings | ({"GPUFERRY_LABELS": ",".join(chosen.label)} if chosen.label else {})


def settings_at(found: endpoint.Endpoint, chosen: argparse.Namespace) -> dict[str, str]:
    """What the options set for the guest library that goes with a session at this monitor."""
    return launch.guest_settings(found, chosen.memory, chosen.function, chosen.stats, chosen.gpus)


def parser() -> argparse.ArgumentParser:
    """The options of `gpuferry run`, which end where the program begins."""
    options = argparse.ArgumentParser(
        prog="gpuferry run",
        usage="gpuferry run [options] -- PROGRAM [ARGUMENT ...]",
        description="Run a CUDA program on a remote device. Output and exit status are the program's own.",
        allow_abbrev=False,
    )
    add_session_options(options)
    options.add_argument("--local", action="store_true", help="start a monitor for this one command")
    options.add_argument(
        "--device", choices=("auto", "gpu", "sim"), help="with --local: what to run on [GPUFERRY_DEVICE]"
    )
    options.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return options


def command_of(options: argparse.ArgumentParser, program: list[str]) -> list[str]:
    """The program and its arguments without the `--` in front."""
    command = program[1:] if program[:1] == ["--"] else program
    if not command:
        options.error("no program given; write it after --")
    return command


def main(arguments: list[str]) -> int:
    """Become the program that the arguments name, as a remote one. Never returns."""
    options = parser()
    chosen = options.parse_args(arguments)
    command = command_of(options, chosen.program)
    settings = demands(options, chosen)
    if chosen.local:
        if chosen.monitor:
            options.error("--local and --monitor exclude each other")
        from .local import run_local

        run_local(command, chosen, settings)
    if chosen.device:
        options.error("--device goes with --local: a monitor that runs has the devices it was started with")
    reach.take_tls_option(chosen)
    found = reach.locate(chosen.monitor, chosen.token_file)
    try:
        reach.greet(found)
    except CliError as error:
        # Not the end: a program may never touch the device, and one that does tries again at its first call.
        say(error.what, error.hint, "warning: ")
    settings |= settings_at(found, chosen)
    return launch.execute(command, launch.guest_environment(settings))
