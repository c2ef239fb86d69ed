"""`python -m tests.fuzz [TARGET …] [--inputs N] [--seed S] [--grow]`: tries inputs and says how many."""

from __future__ import annotations

import argparse
import time

from tests.fuzz import native, seeds
from tests.fuzz.building import FOLDER, build


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", default=[], help="default: all")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grow", action="store_true", help="keep inputs that reach new code")
    chosen = parser.parse_args()
    program, total = build(), 0
    for target in chosen.targets or seeds.TARGETS:
        began = time.monotonic()
        grown = FOLDER / "grown" / target if chosen.grow else None
        found = native.run(program, target, chosen.inputs, chosen.seed, grown)
        seconds = time.monotonic() - began
        total += found.inputs
        rate = found.inputs / seconds
        print(f"{target:14} {found.inputs:10} inputs {found.branches:6} branches {rate:10.0f}/s", flush=True)
    print(f"{'all':14} {total:10} inputs")


if __name__ == "__main__":
    main()
