"""Makes the calls of a file of cases against this process's driver: `python run.py FILE SITUATION…`.

A line of JSON for each situation: its name, and by the number of each case what it gave. The process of a
situation is forked before the driver is touched.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3])]

from tests.facts import children  # noqa: E402
from tests.facts.matrix.situations import SITUATIONS, Case, has  # noqa: E402
from tests.facts.scope import constants  # noqa: E402
from tests.facts.show import toolkit  # noqa: E402

# They change what every later call finds.
APART = (
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxRelease",
    "cuCtxDetach",
    "cuThreadExchange",
    "cuGraphDebugDotPrint",
)


def main() -> None:
    cases: list[Case] = json.loads(Path(sys.argv[1]).read_text())
    known = constants(toolkit() / "include" / "cuda.h")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some calls make files
        for name in sys.argv[2:] or SITUATIONS:
            mine = [(n, c) for n, c in enumerate(cases) if has(name, c)]
            mine = [(n, c) for n, c in mine if not c["symbol"].startswith(APART)]
            print(json.dumps([name, children.each(mine, functools.partial(SITUATIONS[name], known))]))


if __name__ == "__main__":
    main()
