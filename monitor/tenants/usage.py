"""What tenants have used: counters that only grow, and survive the monitor in a file of the state folder."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from gpuferry.specs._generated import tenants_pb2

from ..service.files import write_atomically
from .messages import COUNTED_MOST, USED, plain_usage

FILE = "usage.json"
VERSION = 1
TENANTS_MOST = 1000  # names that are told apart; what others use is counted for NOBODY
DAYS_MOST = 92
NOBODY = "-"

log = structlog.get_logger()


def utc_day() -> str:
    """Today, for accounts: nothing waits for it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


class UsageBook:
    """Usage by tenant, ever and by day. `billed`: seconds and calls of running sessions that are in it
    already, by the session's number, so that the next monitor bills the rest and no more.
    """

    def __init__(self, path: Path, can_be: Callable[[str], bool], day: Callable[[], str] = utc_day) -> None:
        self.path = path
        self._can_be = can_be  # the name of a tenant
        self._day = day
        self._totals: dict[str, tenants_pb2.Usage] = {}
        self._days: dict[str, dict[str, tenants_pb2.Usage]] = {}
        self.billed: dict[int, tuple[float, int]] = {}
        self.changed = False
        self._owned = self._claim()
        if self._owned:
            self._read()

    def _claim(self) -> bool:
        """Whether no other monitor keeps its usage here; then none can while this one lives. Two that wrote
        one file would each replace what the other counted.
        """
        lock = self.path.with_suffix(".lock")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Until the process ends; unlike flock's, this lock is not held by children too.
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning(
                "another monitor keeps the usage of tenants here: this one forgets its own when it ends",
                folder=str(self.path.parent),
                next_step="give each monitor its own GPUFERRY_STATE_DIR",
            )
            return False
        except OSError:
            pass  # whatever is wrong with the folder, writing says so again and again
        return True

    def _read(self) -> None:
        try:
            found = json.loads(self.path.read_text())
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}, known is {VERSION}")
            totals = {name: _usage(name, used) for name, used in found["tenants"].items()}
            days = {
                day: {name: _usage(name, used, day) for name, used in tenants.items()}
                for day, tenants in found["days"].items()
            }
            billed = {int(number): (float(one[0]), int(one[1])) for number, one in found["sessions"].items()}
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError) as error:
            aside = self.path.with_suffix(f".unreadable-{os.getpid()}")
            log.error("usage of tenants cannot be read: it begins at 0", kept=str(aside), error=str(error))
            try:
                self.path.rename(aside)
            except OSError as failure:
                log.error("usage of tenants cannot be put aside", error=str(failure))
            return
        self._totals, self._days, self.billed = totals, days, billed

    def tenant(self, name: str) -> str:
        """The name under which a tenant is counted."""
        if name in self._totals:
            return name
        return name if self._can_be(name) and len(self._totals) < TENANTS_MOST else NOBODY

    def add(self, name: str, **used: float) -> None:
        """Count what a tenant used: fields of Usage."""
        name, day = self.tenant(name), self._day()
        today = self._days.get(day)
        if today is None:
            today = self._days[day] = {}
            for old in sorted(self._days)[:-DAYS_MOST]:
                del self._days[old]
        for place, its_day in ((self._totals, ""), (today, day)):
            usage = place.get(name)
            if usage is None:
                usage = place[name] = tenants_pb2.Usage(tenant=name, day=its_day)
            for field, amount in used.items():
                setattr(usage, field, min(getattr(usage, field) + amount, COUNTED_MOST))
        self.changed = True

    def totals(self) -> list[tenants_pb2.Usage]:
        """What each tenant has ever used, by name."""
        return [usage for _, usage in sorted(self._totals.items())]

    def of(self, name: str) -> tenants_pb2.Usage:
        """What the tenant has ever used."""
        return self._totals.get(name) or tenants_pb2.Usage(tenant=name)

    def days(self, name: str, latest: int = DAYS_MOST) -> list[tenants_pb2.Usage]:
        """What the tenant used on each of the latest days on which anybody used anything, oldest first."""
        return [self._days[day][name] for day in sorted(self._days)[-latest:] if name in self._days[day]]

    def content(self) -> str:
        """All of it, as the file holds it."""
        found: dict[str, Any] = {
            "version": VERSION,
            "tenants": {name: plain_usage(usage) for name, usage in self._totals.items()},
            "days": {
                day: {name: plain_usage(usage) for name, usage in tenants.items()}
                for day, tenants in self._days.items()
            },
            "sessions": {str(number): list(billed) for number, billed in self.billed.items()},
        }
        return json.dumps(found) + "\n"

    def write(self, content: str) -> None:
        """Write the file, unless it is another monitor's: whatever happens, it holds this or what it held
        before. Raises OSError.
        """
        if not self._owned:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self.path, content)


def _usage(name: str, used: dict[str, Any], day: str = "") -> tenants_pb2.Usage:
    return tenants_pb2.Usage(tenant=name, day=day, **{field: used[field] for field in USED})
