"""A recording of what this machine's driver does: every row of driver-facts.md, every call of the matrix.

`python -m tests.facts.recording FILE` writes it as JSON, with the device and its driver; with `--remotely`
also what a program sees through gpuferry. Recordings of real GPUs lie in bench/results/gpu.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.helpers.monitor import monitor
from tests.helpers.running import Command, Outcome, native_environment, real_gpu, run

from . import children, language
from .matrix.cases import cases
from .matrix.situations import EVERY_CASE, SITUATIONS

HERE = Path(__file__).parent
SECONDS = 40.0  # for one process; what it has said until then counts
LIMITED = {children.LIMIT: "10"}
Runs = Callable[[Command], Outcome]
PARTS = 24  # of the situation in which every case is made
# NVIDIA's driver follows a handle that names nothing, and dies of it.
FOLLOWED = ("garbage", "minus one", "of another kind")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--remotely", action="store_true")
    given = parser.parse_args()
    recorded = {"device": device(), "natively": recording(given.jobs, natively)}
    given.file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if given.remotely:
        with monitor("--pool", "2", "--log-level", "warning") as server:
            recorded["remotely"] = recording(
                given.jobs, lambda command: server.run(command, extra=LIMITED, timeout=SECONDS)
            )
    given.file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def natively(command: Command) -> Outcome:
    return run(command, native_environment() | LIMITED, SECONDS)


def recording(jobs: int, runs: Runs) -> dict[str, Any]:
    """Rows and calls, made by as many processes at once."""
    recorded: dict[str, Any] = {"rows": {}, "matrix": {}}
    asked = [case for case in cases() if not given_up(case)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        parts = list(split(asked, Path(folder)))
        rows = pool.map(lambda path: section(path, runs), language.files())
        situations = pool.map(lambda part: situation(part[0], part[1], runs), parts)
        for path, found in zip(language.files(), rows, strict=True):
            recorded["rows"][path.stem] = found
        for (_, name, part), found in zip(parts, situations, strict=True):
            there = recorded["matrix"].setdefault(name, {})
            there |= {key(part[int(number)]): result for number, result in found.items()}
    return recorded


def key(case: dict[str, Any]) -> str:
    """How a recording names a case."""
    return f"{case['symbol']} {case['wrong']}".strip()


def given_up(case: dict[str, Any]) -> bool:
    """Whether nobody could learn anything by making this call."""
    return any(case["wrong"].endswith(f" {what}") for what in FOLLOWED) and any(
        token == ["value", 0xDEADBEEF] or token == ["value", 2**64 - 1] or token[0] == "handle"
        for token in case["args"]
    )


def split(made: list[dict[str, Any]], folder: Path) -> Iterator[tuple[Path, str, list[dict[str, Any]]]]:
    """A file of cases, the situation they are made in, and the cases; the longest first."""
    for n in range(PARTS):
        part = made[n * len(made) // PARTS : (n + 1) * len(made) // PARTS]
        yield _written(folder / f"{n}.json", part), EVERY_CASE, part
    right = [case for case in made if not case["wrong"]]
    for name in SITUATIONS:
        if name != EVERY_CASE:
            yield _written(folder / f"{name}.json", right), name, right


def _written(path: Path, part: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(part), encoding="utf-8")
    return path


def section(path: Path, runs: Runs) -> dict[str, Any]:
    """What is not as a file of rows says, by the words of each row."""
    found = answer([sys.executable, HERE / "show.py", path], runs)
    if isinstance(found, str):
        return {"": found}
    rows = {str(row.number): row.words for row in language.read(path).rows}
    return {rows[number]: wrong for number, wrong in found.items()}


def situation(file: Path, name: str, runs: Runs) -> dict[str, Any]:
    """What the cases of a file give in a situation, by number."""
    found = answer([sys.executable, HERE / "matrix" / "run.py", file, name], runs)
    return {"0": found} if isinstance(found, str) else dict(found[1])


def answer(command: Command, runs: Runs) -> Any:
    """What a process says in JSON, or what became of it."""
    try:
        done = runs(command)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS:g} s"
    return f"ended with {done.status}: {done.stderr[-2000:]}" if done.status else json.loads(done.stdout)


def device() -> dict[str, Any]:
    """What answered, in a process of its own."""
    asked = subprocess.run(
        [sys.executable, "-c", _DEVICE], env=native_environment(), capture_output=True, text=True, check=True
    )
    return {"simulated": not real_gpu(), **json.loads(asked.stdout)}


_DEVICE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
version, name, values = ctypes.c_int(), ctypes.create_string_buffer(100), {}
assert cuda.cuInit(0) == 0 and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
assert cuda.cuDeviceGetName(name, 100, 0) == 0
for attribute in range(1, 160):
    value = ctypes.c_int(-1)
    if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0:
        values[attribute] = value.value
print(json.dumps({"cuda": version.value, "name": name.value.decode(), "attributes": values}))
"""

if __name__ == "__main__":
    main()
