"""Secrets where everybody on this machine can read them: command lines of processes, and units of systemd."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from .check import Check

NAME = "secrets in the open"
PROCESSES = Path("/proc")
UNITS = tuple(
    Path(folder, "systemd/system") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
UNIT_MOST = 1 << 20  # bytes of a unit that are read
# A value that could be one: neither a variable of a shell, nor a place to be filled in.
_SECRET = re.compile(
    r"\bGPUFERRY_(TOKEN|CLUSTER_KEY|FUNCTIONS_TOKEN)=[\"']?[A-Za-z0-9][A-Za-z0-9._+/=-]{15,}"
)
_FILE = re.compile(r"^\s*EnvironmentFile\s*=\s*-?(/\S+)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*[#;].*$", re.MULTILINE)


def open_secrets(processes: Path = PROCESSES, units: Sequence[Path] = UNITS) -> Iterator[Check]:
    """The findings, without the secrets."""
    yield from _processes(processes)
    seen: set[Path] = set()
    for folder in units:
        for unit in sorted([*folder.glob("*.service"), *folder.glob("*.d/*.conf")]):
            if (real := unit.resolve()) not in seen:
                seen.add(real)
                yield from _unit(unit)


def _processes(folder: Path) -> Iterator[Check]:
    for process in sorted(folder.glob("[0-9]*"), key=lambda entry: int(entry.name)):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            name = (process / "comm").read_text(errors="replace").strip()
        except OSError:  # it has ended
            continue
        if int(process.name) != os.getpid() and (found := _SECRET.search(command)):
            detail = f"GPUFERRY_{found[1]} is in the command line of process {process.name} ({name})"
            yield Check(NAME, "failed", detail, _instead(found[1]))


def _unit(unit: Path) -> Iterator[Check]:
    text = _text(unit)
    if found := _SECRET.search(text):  # which `systemctl show` tells everybody, whatever the file's mode
        yield Check(NAME, "failed", f"GPUFERRY_{found[1]} is in the unit {unit}", _instead(found[1]))
    for named in _FILE.findall(text):
        file = Path(named)
        if (found := _SECRET.search(_text(file))) and (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
            detail = f"GPUFERRY_{found[1]} is in {file}, which others can read (mode {mode:04o})"
            yield Check(NAME, "failed", detail, f"`chmod 600 {file}`")


def _text(file: Path) -> str:
    """What counts in a file; nothing of one that cannot be read."""
    try:
        with file.open("rb") as content:
            text = content.read(UNIT_MOST).decode(errors="replace")
    except OSError:
        return ""
    return _COMMENT.sub("", text)


def _instead(what: str) -> str:
    return f"make a new one, for this is known; write it to a file, mode 0600, and set GPUFERRY_{what}_FILE"
