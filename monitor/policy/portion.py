"""What a session asks for of a GPU beside memory, as KubeShare has it (policies.md §3): time and company; and
the labels of those who are on one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

FULL = 1000  # thousandths of a GPU's time: all of it


class Portion(NamedTuple):
    """Time in thousandths of a GPU's, and labels; empty ones say nothing. Only sessions of one scope see each
    other's labels.
    """

    request: int = 0  # that it is promised; 0: it shares what is left
    limit: int = FULL  # that it may have at most
    affinity: str = ""  # all who say the same are on one GPU
    anti_affinity: str = ""  # no two who say the same are on one GPU
    exclusion: str = ""  # on one GPU are only those who say the same, be it nothing
    scope: str = ""

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """What decides who may be on a GPU together; the request decides how many."""
        return self[2:]

    @property
    def says_nothing(self) -> bool:
        """Whether nothing was asked for; whose labels it would see is no matter."""
        return self[:5] == PLAIN[:5]

    def shown(self) -> str:
        """The portion in the words of the options, as in "request 0.3, limit 0.6, affinity red"; empty if
        nothing was asked for.
        """
        parts = []
        if self.request:
            parts.append(f"request {shown_time(self.request)}")
        if self.limit < FULL:
            parts.append(f"limit {shown_time(self.limit)}")
        names = ("affinity", "anti-affinity", "exclusive")
        said = (self.affinity, self.anti_affinity, self.exclusion)
        parts += [f"{name} {label}" for name, label in zip(names, said, strict=True) if label]
        return ", ".join(parts)


PLAIN = Portion()


def shown_time(thousandths: int) -> str:
    """Thousandths of a GPU's time as people write them: 0.3, 0.125, 1."""
    return f"{thousandths / FULL:.3f}".rstrip("0").rstrip(".")


@dataclass(slots=True)
class Marks:
    """The labels of one scope's sessions on one GPU, each with the number of those who said it. Counted, so
    that they are right again when somebody leaves.
    """

    sessions: int = 0
    affinity: dict[str, int] = field(default_factory=dict)
    anti_affinity: dict[str, int] = field(default_factory=dict)
    exclusion: dict[str, int] = field(default_factory=dict)  # those who said nothing said ""
    leaving: dict[str, int] = field(default_factory=dict)  # affinities of sessions on their way elsewhere

    def add(self, portion: Portion, by: int) -> None:
        """Add (`by` 1) or remove (-1) one session with these labels."""
        self.sessions += by
        if portion.affinity:
            count(self.affinity, portion.affinity, by)
        if portion.anti_affinity:
            count(self.anti_affinity, portion.anti_affinity, by)
        count(self.exclusion, portion.exclusion, by)


def count(counts: dict[str, int], label: str, by: int) -> None:
    """Add `by` to the count of a label; a label whose count is 0 is removed."""
    if number := counts.get(label, 0) + by:
        counts[label] = number
    else:
        del counts[label]
