"""Looks for differences between two drivers: `python -m tests.differential.calls --programs 1000`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from tests.helpers.monitor import monitor
from tests.helpers.running import guest_environment, native_environment

from .comparing import Pair, Player, kind_of, shown
from .programs import program


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.calls", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--most", type=int, default=2, help="examples of each call that are shown")
    parser.add_argument("--file", help="where each shortest program is added, a line of JSON")
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    several = {"GPUFERRY_SIM_DEVICES": str(options.devices)}
    wanted = {"GPUFERRY_GPUS": str(options.devices)}
    found: Counter[str] = Counter()
    began = time.monotonic()
    with (
        monitor("--pool", "2", "--log-level", "warning", environment=several) as server,
        Player({**native_environment(), **several}) as here,
        Player({**guest_environment(server.settings()), **wanted}) as there,
    ):
        pair = Pair(here, there)
        for seed in range(options.seed, options.seed + options.programs):
            if (seed - options.seed) % 100 == 99:
                print(
                    f"{seed - options.seed + 1} programs, {found.total()} differ", file=sys.stderr, flush=True
                )
            whole = program(seed, options.devices)
            difference = pair.difference(whole)
            if difference is None:
                continue
            kind = kind_of(difference[1])
            found[kind] += 1
            if found[kind] > options.most:
                continue
            print(
                f"seed {seed} has {len(whole['steps'])} steps: {difference[1]}", file=sys.stderr, flush=True
            )
            least, what = pair.shrunk(whole, difference[1])
            print(f"seed {seed}: {what}\n{shown(least)}", flush=True)
            if options.file:
                with open(options.file, "a") as file:
                    file.write(json.dumps(least) + "\n")
    took = time.monotonic() - began
    print(f"{options.programs} programs in {took:.0f} s: {sum(found.values())} differ {dict(found)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
