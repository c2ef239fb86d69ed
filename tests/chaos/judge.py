"""What may come of a program when its GPU server dies: the right answer, or an error that CUDA documents.

A lost program goes on and reports whatever it then finds; so what counts is the first line that differs from
a run without chaos: it must be the error. Had a wrong result come first, that line would show it.
"""

from __future__ import annotations

import re
from itertools import takewhile

from tests.helpers.running import Outcome

LOST = re.compile(
    r"-> CUDA_ERROR_(DEVICE_UNAVAILABLE|SYSTEM_NOT_READY)$"
    r"|-> cudaError(DevicesUnavailable|SystemNotReady)$"
    r"|: (CUDA-capable device\(s\) is/are busy or unavailable|system not yet initialized)$",
    re.MULTILINE,
)


class Wrong(AssertionError):
    """An answer that is neither right nor an error, or a program that crashed."""


def judge(name: str, right: Outcome, outcome: Outcome) -> str:
    """`right` or `error`; raises Wrong."""
    if (outcome.status, outcome.stdout) == (right.status, right.stdout):
        return "right"
    where = f"{name}, exit status {outcome.status}:\n{outcome.stdout}{outcome.stderr}"
    if outcome.status <= 0:
        raise Wrong(f"{'no error' if outcome.status == 0 else 'crashed'}: {where}")
    wanted, got = right.stdout.splitlines(), outcome.stdout.splitlines()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(wanted, got, strict=False)))
    news = got[same] if same < len(got) else outcome.stderr
    if not LOST.search(news):
        raise Wrong(f"{news!r} came before any error: {where}")
    return "error"
