"""`python -m tests.fuzz [TARGET …] [--inputs N] [--seed S] [--grow]`: tries inputs and says how many."""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import control, native, orders, parsers, seeds
from tests.fuzz.building import FOLDER, build
from tests.fuzz.test_engine import attack

# How many inputs of the quickest there are time for while one of these is tried.
SLOWER = dict.fromkeys(parsers.TARGETS, 50) | dict.fromkeys(("hello", "simulated", "variables"), 10)
SLOWER |= {"engine": 20, "control": 20, "orders": 500}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    names = [*seeds.TARGETS, *parsers.TARGETS, "control", "orders", "engine"]
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each in C; others get a part of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grow", action="store_true", help="keep inputs that reach new code, in build/fuzz")
    chosen = parser.parse_args()
    if unknown := set(chosen.targets) - set(names):
        parser.error(f"no target {', '.join(sorted(unknown))}: choose of {', '.join(names)}")
    total = 0
    for name in chosen.targets or names:
        inputs = max(1, chosen.inputs // SLOWER.get(name, 1))
        began = time.monotonic()
        found = _runner(name, chosen.grow)(inputs, chosen.seed)
        total += found
        rate = found / (time.monotonic() - began)
        print(f"{name:14} {found:10} inputs {rate:10.0f}/s", flush=True)
    print(f"{'all':14} {total:10} inputs")


def _runner(name: str, grow: bool) -> Callable[[int, int], int]:
    """What tries so many inputs with this seed, and returns how many it were."""
    if name == "control":
        return control.run
    if name == "orders":
        return orders.run
    if name == "engine":
        return _engine
    if name in parsers.TARGETS:
        return functools.partial(_parser, name)
    return functools.partial(_native, name, FOLDER / "grown" / name if grow else None)


def _native(name: str, grown: Path | None, inputs: int, seed: int) -> int:
    return native.run(build(), name, inputs, seed, grown).inputs


def _parser(name: str, inputs: int, seed: int) -> int:
    parsers.run(name, inputs, seed)
    return inputs


def _engine(inputs: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return attack(Path(folder), inputs, seed).frames


if __name__ == "__main__":
    main()
