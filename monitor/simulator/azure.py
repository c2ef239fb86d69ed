"""The Azure Functions 2019 trace (github.com/Azure/AzurePublicDataset): calls per function and minute."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path

from numpy.random import RandomState

from .models import spread
from .workload import MIB, Job, Workload

CALLS = ("HashOwner", "HashApp", "HashFunction", "Trigger")  # then 1 … 1440
DURATIONS = ("HashOwner", "HashApp", "HashFunction", "Average")
MEMORY = ("HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb")
MINUTES = 1440
CALLS_MOST = 5_000_000  # of a slice: a few hundred bytes each


class TraceError(ValueError):
    """A file is not of that format; says where."""


@dataclass(frozen=True)
class Slice:
    """A part of a day of the trace, and how it is scaled (policies.md §4.4)."""

    first: int = 1
    last: int = 6
    functions: int = 15  # the most called ones
    per_minute: int | None = 325  # calls of all of them together, their ratios kept; None: as they were
    seed: int = 0


@dataclass(frozen=True, eq=False)
class _Function:
    owner: str
    app: str
    name: str
    calls: Sequence[int]


def read(calls: Path, part: Slice, *, durations: Path | None = None, memory: Path | None = None) -> Workload:
    """Read one day of the trace: calls per function and minute. Run times and memory are in the two other
    files; without them functions get those of image models (models.py). Raises TraceError.
    """
    functions = nlargest(part.functions, _functions(calls, part), key=lambda function: sum(function.calls))
    seconds = {row[:3]: value / 1000 for row, value in _values(durations, DURATIONS)}
    megabytes = {row[:2]: value for row, value in _values(memory, MEMORY)}
    often = Counter(function.name for function in functions)
    names = {
        function: function.name if often[function.name] == 1 else f"{function.app}/{function.name}"
        for function in functions
    }
    minutes = range(part.last - part.first + 1)
    called = [scaled([each.calls[minute] for each in functions], part.per_minute) for minute in minutes]
    where = f"{calls}, minutes {part.first}–{part.last}"
    if not (total := sum(map(sum, called))):
        raise TraceError(f"{where}: no calls")
    if total > CALLS_MOST:
        raise TraceError(f"{where}: {total} calls, at most {CALLS_MOST}: --per-minute N scales them")
    random = RandomState(part.seed)
    jobs = []
    for minute, counts in enumerate(called):
        for rank, (function, count) in enumerate(zip(functions, counts, strict=True)):
            model = spread(rank)
            work = seconds.get((function.owner, function.app, function.name), model.load + model.inference)
            size = megabytes.get((function.owner, function.app), model.megabytes)
            for moment in random.uniform(60.0 * minute, 60.0 * (minute + 1), size=count):
                jobs.append(Job(float(moment), names[function], memory=int(size * MIB), work=work))
    jobs.sort(key=lambda job: job.launch)
    return Workload(f"{calls.name}, minutes {part.first}–{part.last}", jobs)


def scaled(counts: Sequence[int], total: int | None) -> Sequence[int]:
    """Whole numbers that add up to this sum in these ratios; what rounding leaves goes to the largest
    remainders.
    """
    before = sum(counts)
    if total is None or not before:
        return counts
    shares = [divmod(count * total, before) for count in counts]
    short = total - sum(whole for whole, _ in shares)
    lucky = set(nlargest(short, range(len(shares)), key=lambda number: shares[number][1]))
    return [whole + (number in lucky) for number, (whole, _) in enumerate(shares)]


def _functions(path: Path, part: Slice) -> Iterator[_Function]:
    wanted = slice(len(CALLS) + part.first - 1, len(CALLS) + part.last)
    for line, row in _rows(path, (*CALLS, *(str(minute) for minute in range(1, MINUTES + 1)))):
        try:
            counts = [int(count) for count in row[wanted]]
        except ValueError:
            wrong = next(filter(_is_no_number, row[wanted]))
            raise TraceError(f"{path}:{line}: {wrong[:40]!r} is no number of calls") from None
        if min(counts) < 0:
            raise TraceError(f"{path}:{line}: {min(counts)} calls in a minute")
        yield _Function(row[0], row[1], row[2], counts)


def _is_no_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return True
    return False


def _values(path: Path | None, columns: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
    """The columns before the last one named, and that one as a number."""
    if not path:
        return
    for line, row in _rows(path, columns):
        what, text = columns[-1], row[len(columns) - 1]
        try:
            value = float(text)
        except ValueError as error:
            raise TraceError(f"{path}:{line}: {error}") from None
        if not 0 <= value < math.inf:
            raise TraceError(f"{path}:{line}: {what} is {text}")
        yield tuple(row[: len(columns) - 1]), value


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields, after a header that begins with those columns."""
    with path.open(newline="", encoding="utf-8", errors="backslashreplace") as lines:
        reader = csv.reader(lines)
        try:
            header = next(reader, None)
            if header is None:
                raise TraceError(f"{path}: it is empty")
            for number, column in enumerate(columns):
                if header[number : number + 1] != [column]:
                    raise TraceError(f"{path}:1: column {number + 1} should be {column}")
            for row in reader:
                if len(row) != len(header):
                    raise TraceError(f"{path}:{reader.line_num}: {len(row)} columns instead of {len(header)}")
                yield reader.line_num, row
        except csv.Error as error:  # a field that is too long
            raise TraceError(f"{path}:{reader.line_num}: {error}") from None
