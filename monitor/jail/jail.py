"""The jails of one monitor: who gets which user, what is made for each and removed after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from ..service.files import emptied_if_larger
from ..service.processes import start_time
from . import command
from .cgroups import Cgroups
from .command import Cell, Rules
from .figures import LARGEST, PLACE, Figures
from .scribe import Scribe

OOM_SCORE = 500  # of 1000: before the monitor, and before what is not ours
NICE = 5  # of jailed processes where no cgroup shares processors: a third of what others have

log = structlog.get_logger()


@contextlib.contextmanager
def _logged(event: str, pid: int) -> Iterator[None]:
    """What an API server can do without, if it is there yet."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        pass
    except OSError as error:
        log.warning(event, pid=pid, reason=str(error))


class Stay:
    """What one process takes of its jail, from before its start until after its end."""

    def __init__(
        self, jail: Jail, rules: Rules, uid: int, cgroup: str = "", figures: Path | None = None
    ) -> None:
        self._jail = jail
        self._rules = rules
        self.uid = uid  # that it is there; 0: the monitor's
        self.cgroup = cgroup
        self.figures = figures  # the file of what its simulated device uses
        self.bwrap = rules.bwrap

    def arguments(self) -> list[str]:
        """Return the arguments for bubblewrap that make the jail."""
        shown = {PLACE: str(self.figures)} if self.figures else {}
        cell = Cell(self.uid, shown, {"GPUFERRY_SIM_STATS": PLACE} if self.figures else {})
        return command.arguments(self._rules, cell)

    def confinement(self) -> str:
        """What the process is told."""
        return command.confinement(self._rules, self.uid, self._jail.nice)

    def entered(self, pid: int) -> None:
        """The process is there: limit it from outside. Raises OSError."""
        self._jail.limit(self, pid)

    def takes_too_much(self) -> bool:
        """Whether it has filled the disk with what it may write. Then that is gone."""
        return self.figures is not None and emptied_if_larger(self.figures, LARGEST)

    def voice(self) -> int:
        """A descriptor for what the process writes on its standard output and error, to be closed. Raises
        OSError.
        """
        return self._jail.scribe.voice()

    def leave(self) -> None:
        """Remove what was made for a process that is gone."""
        self._jail.leave(self)


class Jail:
    """Makes jails: by `apart`, where those in them must not know of each other, or by `shared`.

    `uids`: of whom each gets one, where the monitor is root.
    """

    def __init__(
        self,
        apart: Rules,
        shared: Rules,
        uids: Sequence[int],
        cgroups: Cgroups | None,
        figures: Figures | None,
    ) -> None:
        self._apart, self._shared = apart, shared
        self._uids = uids
        self._taken: set[int] = set()
        self._cgroups = cgroups
        self.nice = 0 if cgroups and cgroups.shares_processors else NICE
        self._figures = figures  # of the simulated device
        self.scribe = Scribe()

    @property
    def counts_memory(self) -> bool:
        """Whether the kernel counts what those in a jail have."""
        return self._cgroups is not None

    def enter(self, apart: bool) -> Stay:
        """Make room for one more process. Raises OSError if there is no user left for it."""
        uid, rules = 0, self._apart if apart else self._shared
        if rules.root:
            uid = next((each for each in self._uids if each not in self._taken), 0)
            if not uid:
                raise OSError(f"all {len(self._uids)} users of --jail-uids are taken")
        figures = self._figures.make(uid) if self._figures else None
        self._taken.add(uid)  # not before: where there is no room for a file, nobody would give it back
        return Stay(self, rules, uid, figures=figures)

    def readopt(self, uid: int, cgroup: str, pid: int, began: int) -> Stay:
        """What a process of an earlier monitor has taken, which may be gone by now."""
        self._taken.add(uid)
        figures = self._figures.owned(pid, began) if self._figures else None
        return Stay(self, self._apart, uid, cgroup, figures)

    def limit(self, stay: Stay, pid: int) -> None:
        """Put a jailed process into its cgroup, name its figures, and set its score for the OOM killer.
        Raises OSError where there are cgroups and it is in none.
        """
        with contextlib.suppress(ProcessLookupError):  # it is gone, and whoever waits for it will hear
            if self._cgroups:
                stay.cgroup = self._cgroups.make(pid)
        with _logged("the figures of an API server have no name", pid):
            if self._figures and stay.figures:  # it may not be mounted yet: both names stay
                os.link(stay.figures, self._figures.owned(pid, start_time(pid)))
        with _logged("an API server has no score for the OOM killer", pid):
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(OOM_SCORE))

    def leave(self, stay: Stay) -> None:
        """Remove what was made for a process that is gone."""
        self._taken.discard(stay.uid)
        if self._cgroups and stay.cgroup:
            self._cgroups.remove(stay.cgroup)
        if self._figures and stay.figures:
            self._figures.remove(stay.figures)

    def close(self) -> None:
        """Remove what was made for all of them."""
        if self._cgroups:
            self._cgroups.close()
        if self._figures:
            self._figures.close()
