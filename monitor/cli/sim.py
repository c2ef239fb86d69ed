"""`gpuferry sim`: a program, unmodified, on the simulated device of this machine. Standard library only."""

from __future__ import annotations

import argparse

from gpuferry.guest import launch

from .run import command_of


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def main(arguments: list[str]) -> int:
    """Become the program that the arguments name, on the simulated device. Returns only if it cannot
    begin.
    """
    options = argparse.ArgumentParser(
        prog="gpuferry sim",
        usage="gpuferry sim [--devices N] [--vary SEED] [--skip-code] -- PROGRAM [ARGUMENT ...]",
        description="Run a CUDA program natively on the simulated device. It is correct, and slow.",
        allow_abbrev=False,
    )
    options.add_argument(
        "--devices", metavar="N", type=_count, help="how many there are [GPUFERRY_SIM_DEVICES]"
    )
    options.add_argument(
        "--vary",
        metavar="SEED",
        type=_count,
        help="vary what CUDA leaves open: addresses, order and timing of independent work, the card's size, "
        "what new memory holds [GPUFERRY_SIM_VARIANCE]",
    )
    options.add_argument(
        "--skip-code",
        action="store_true",
        help="load machine code too, and run no kernel at all: what a program calls is tested, what it "
        "computes means nothing [GPUFERRY_SIM_CODE=skip]",
    )
    options.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments)
    command = command_of(options, chosen.program)
    environment = launch.simulating_environment(chosen.devices, chosen.vary, chosen.skip_code)
    return launch.execute(command, environment)
