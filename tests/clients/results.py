"""What became of tests, natively and remotely, and whether that is as known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .recorder import BEGUN, FAILED, PASSED, WHOLE
from .table import Known

MODES = ("native", "remote")
LEAST = 0.98  # of a client's tests that want no machine code must pass
Outcomes = Mapping[str, tuple[str, str]]  # test -> outcome and message


def read(record: Path) -> dict[str, tuple[str, str]]:
    """The last word on each test; one that began and has no end did not come to it."""
    found: dict[str, tuple[str, str]] = {}
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else []:
        test, outcome, message, _ = json.loads(line)
        found[test] = (outcome, message)
    return {
        test: (FAILED, "the process ended in it, or it hung") if outcome == BEGUN else (outcome, message)
        for test, (outcome, message) in found.items()
    }


def complete(record: Path) -> bool:
    """Whether the module came to its end."""
    return WHOLE in read(record)


@dataclass
class Summary:
    """Of one client, or of one module of it."""

    tests: int = 0
    passed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    ran: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    machine_code: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    calls: int = 0
    round_trips: int = 0

    def add(self, native: Outcomes, remote: Outcomes, entries: Sequence[Known] = ()) -> None:
        """What one module's tests did."""
        self.tests += len((native.keys() | remote.keys()) - {WHOLE})
        for mode, outcomes in zip(MODES, (native, remote), strict=True):
            said = [outcome for test, (outcome, _) in outcomes.items() if test != WHOLE]
            self.passed[mode] += said.count(PASSED)
            self.ran[mode] += said.count(PASSED) + said.count(FAILED)
            self.machine_code[mode] += sum(e.machine_code for e in explained(entries, mode, outcomes))

    def share(self, mode: str) -> float:
        """How much of what ran and wants no machine code has passed; all, if nothing is left."""
        wanted = self.wanted(mode)
        return self.passed[mode] / wanted if wanted else 1.0

    def wanted(self, mode: str) -> int:
        """How many ran that want no machine code."""
        return self.ran[mode] - self.machine_code[mode]

    def few(self) -> list[str]:
        """In which modes too little passes."""
        return [
            f"{self.share(mode):.1%} pass ({mode}), of {self.wanted(mode)} that want no machine code"
            for mode in MODES
            if self.share(mode) < LEAST
        ]

    def add_stats(self, stats: Path) -> None:
        """What the guest counted (GPUFERRY_STATS)."""
        if stats.exists():
            counted = json.loads(stats.read_text(encoding="utf-8"))
            self.calls += sum(counted["calls"].values())
            self.round_trips += counted["round_trips"]


def explained(entries: Sequence[Known], mode: str, outcomes: Outcomes) -> list[Known]:
    """The entry of each failure that has one."""
    found = []
    for test, (outcome, message) in outcomes.items():
        if outcome == FAILED:
            found += [entry for entry in entries if entry.explains(test, mode, message)][:1]
    return found


def miscounted(
    entries: Sequence[Known], modules: Iterable[tuple[Outcomes, Outcomes]], whole: bool
) -> list[str]:
    """Entries that explain more failures than they say, or, in all modules (`whole`), none."""
    counts: Counter[tuple[Known, str]] = Counter()
    for both in modules:
        for mode, outcomes in zip(MODES, both, strict=True):
            counts.update((entry, mode) for entry in explained(entries, mode, outcomes))
    found = [
        f"known.toml: {count} fail by the entry {entry.tests!r} ({mode}), which says {entry.most}"
        f" ({entry.why})"
        for (entry, mode), count in counts.items()
        if not entry.machine_code and count > entry.most
    ]
    idle = [entry for entry in entries if whole and not any(counts[entry, mode] for mode in MODES)]
    return found + [f"known.toml: nothing fails by the entry {e.tests!r} ({e.why})" for e in idle]


def errors(entries: Iterable[Known], native: Outcomes, remote: Outcomes) -> list[str]:
    """What is not as known: failures that nobody explains."""
    found = []
    for mode, outcomes in zip(MODES, (native, remote), strict=True):
        for test, (outcome, message) in sorted(outcomes.items()):
            if outcome != FAILED or any(e.explains(test, mode, message) for e in entries):
                continue
            differs = mode == "remote" and native.get(test, (FAILED, ""))[0] == PASSED
            what = "passes natively, fails remotely" if differs else f"fails ({mode})"
            found.append(f"{test}: {what}: {message.partition(chr(10))[0]}")
    return found


def stale(entries: Iterable[Known], native: Outcomes, remote: Outcomes) -> list[str]:
    """Entries of which a test passes; those that go by what a failure says are about failures only."""
    return [
        f"known.toml: {test} passes ({mode}); mend the entry {entry.tests!r} ({entry.why})"
        for entry in entries
        for mode, outcomes in zip(MODES, (native, remote), strict=True)
        for test, (outcome, _) in sorted(outcomes.items())
        if outcome == PASSED and entry.says == "*" and entry.covers(test, mode)
    ]
