"""What a monitor says to an API server that it starts."""

from __future__ import annotations

import pytest
from gpuferry.apiserver.__main__ import Options


def test_both_ways_to_write_them() -> None:
    words = ["--device", "0,1", "--control-fd=30", "--confine-fd", "31", "--fixed-addresses"]
    assert Options.read(words) == Options("0,1", None, 30, 31, fixed_addresses=True)


@pytest.mark.parametrize("words", [["--devise", "0"], ["0"], ["--control-fd", "none"], ["--control-fd"]])
def test_what_is_none(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no option|invalid literal"):
        Options.read(words)
