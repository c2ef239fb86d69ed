"""The table of clients (clients.toml) and what is known not to pass (known.toml)."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Client:
    """One row of the table: clients.toml says what each entry means."""

    name: str
    requirements: list[str]
    modules: list[str]
    kind: str
    root: str = ""
    without: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    device: dict[str, str] = field(default_factory=dict)
    sources: str = ""
    debian: list[str] = field(default_factory=list)
    ours: bool = False
    options: list[str] = field(default_factory=list)
    silence: int = 900

    def place(self, environment: Path) -> Path:
        """Where modules are named from, if the client's environment is here."""
        if self.ours:
            return HERE / self.root
        found = sorted(environment.glob(self.root or "tests"))
        if not found:
            raise SystemExit(f"{self.name}: {environment} has no {self.root or 'tests'}")
        return found[0]

    def names(self, environment: Path) -> list[str]:
        """Of all modules, in the order in which they run."""
        place = self.place(environment)
        matches = {pattern: sorted(place.glob(pattern)) for pattern in self.modules}
        for pattern in (each for each, paths in matches.items() if not paths):
            raise SystemExit(f"{self.name}: {place} has no {pattern}")
        files = [path.relative_to(place) for paths in matches.values() for path in paths]
        named = [".".join(f.with_suffix("").parts) if self.kind == "unittest" else str(f) for f in files]
        return list(dict.fromkeys(named))


@dataclass(frozen=True)
class Known:
    """Tests that do not pass: natively (and so remotely), or only remotely. There are `most` of them, unless
    they want machine code, of which a simulated device has none."""

    tests: str
    where: str
    why: str
    says: str = "*"
    most: int = 0
    machine_code: bool = False

    def __post_init__(self) -> None:
        if self.where not in ("native", "remote") or not self.why:
            raise ValueError(f"known.toml: {self.tests}: where is native or remote, and why says why")
        if self.machine_code == (self.most > 0):
            raise ValueError(f"known.toml: {self.tests}: most says how many, or machine_code that it is that")

    def covers(self, test: str, mode: str) -> bool:
        """Whether this test is known not to pass in this mode."""
        return (self.where == "native" or mode == "remote") and fnmatchcase(test, self.tests)

    def explains(self, test: str, mode: str, message: str) -> bool:
        """Whether it is known not to pass with this message."""
        return self.covers(test, mode) and fnmatchcase(message, self.says)


def clients(text: str | None = None) -> dict[str, Client]:
    """All of them by name."""
    return {name: Client(name, **row) for name, row in _read(text, "clients.toml").items()}


def known(text: str | None = None) -> dict[str, list[Known]]:
    """Of each client what does not pass."""
    return {name: [Known(**row) for row in rows] for name, rows in _read(text, "known.toml").items()}


def _read(text: str | None, file: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((HERE / file).read_text() if text is None else text)
    return found
