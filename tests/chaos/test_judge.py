"""The judge itself: what it lets pass, and what not."""

from __future__ import annotations

import pytest

from tests.chaos.judge import Wrong, judge
from tests.helpers.running import Outcome

RIGHT = Outcome(0, "cudaMalloc -> cudaSuccess\ncopied -> cudaSuccess\nsum: 42\n", "")
LOST = "copied -> cudaErrorDevicesUnavailable\n"


def test_the_right_answer() -> None:
    assert judge("program", RIGHT, Outcome(0, RIGHT.stdout, "gpuferry: a remark\n")) == "right"


@pytest.mark.parametrize(
    ("status", "stdout", "stderr"),
    [
        (1, f"cudaMalloc -> cudaSuccess\n{LOST}sum: 0\n", ""),
        (1, LOST.replace("copied", "cudaMalloc").replace("DevicesUnavailable", "SystemNotReady"), ""),
        (1, "cudaMalloc -> cudaSuccess\n", "kmeans: CUDA-capable device(s) is/are busy or unavailable\n"),
    ],
    ids=["in the middle", "at the beginning", "on stderr"],
)
def test_an_error(status: int, stdout: str, stderr: str) -> None:
    assert judge("program", RIGHT, Outcome(status, stdout, stderr)) == "error"


@pytest.mark.parametrize(
    ("status", "stdout", "reason"),
    [
        (0, RIGHT.stdout.replace("42", "41"), "no error"),
        (0, f"cudaMalloc -> cudaSuccess\n{LOST}", "no error"),
        (1, RIGHT.stdout, "came before any error"),
        (1, RIGHT.stdout.replace("42", "41") + LOST, "came before any error"),
        (1, f"cudaMalloc -> cudaErrorInvalidValue\n{LOST}", "came before any error"),
        (1, "", "came before any error"),
        (-11, f"cudaMalloc -> cudaSuccess\n{LOST}", "crashed"),
    ],
    ids=[
        "wrong",
        "an error hidden",
        "failed for nothing",
        "wrong, then lost",
        "another error",
        "silent",
        "crash",
    ],
)
def test_wrong(status: int, stdout: str, reason: str) -> None:
    with pytest.raises(Wrong, match=reason):
        judge("program", RIGHT, Outcome(status, stdout, ""))
