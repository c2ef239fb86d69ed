"""Which secrets are taken: what a generator made, and nothing that somebody thought of."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuferry.monitor.cli import main
from gpuferry.monitor.cluster.key import read_cluster_key
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import choose_token
from gpuferry.monitor.settings.tokens import BITS_WANTED, check_strength, strength

CHOSEN = (
    "",
    "abc",
    "secret",
    "t" * 64,
    "-" * 64,
    "chaos" * 8,
    "a1" * 32,
    "x" * 63 + "y",
    "0123456789abcdef" * 4,
    "1234567890" * 6,
    "qwertyuiopasdfghjklzxcvbnm",
    "password1234567890",
    "hunter2hunter2hunter2hunter2",
    "correct horse battery staple",
    "CorrectHorseBatteryStaple2026",
    "Summer2024!Winter2025!Spring2026!",
    "gpuferry-cluster-secret-2026",
    "a token that both monitors are given",
    "to be or not to be that is the question",
    "3141592653589793238462643383279502884197",
)


@pytest.mark.parametrize("secret", CHOSEN)
def test_what_people_choose_is_refused(secret: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a token and as a cluster key, from a file and from the environment; and is not repeated."""
    with pytest.raises(ConfigError, match="can be guessed") as caught:
        check_strength("it", secret)
    assert "gpuferry token new" in caught.value.hint
    if secret:
        file = tmp_path / "secret"
        file.write_text(secret + "\n")
        monkeypatch.setenv("GPUFERRY_TOKEN", secret)
        monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", secret)
        for ask in (
            lambda: choose_token(str(file)),
            lambda: choose_token(None),
            lambda: read_cluster_key(str(file), tmp_path),
            lambda: read_cluster_key(None, tmp_path),
        ):
            with pytest.raises(ConfigError, match="can be guessed") as caught:
                ask()
            assert secret not in str(caught.value).replace(str(file), "")


@pytest.mark.parametrize(
    "make",
    [
        lambda bits: bits.randbytes(32).hex(),
        lambda bits: base64.b64encode(bits.randbytes(32)).decode(),
        lambda bits: base64.urlsafe_b64encode(bits.randbytes(32)).decode().rstrip("="),
    ],
)
def test_what_a_generator_makes_is_taken(make: Callable[[random.Random], str]) -> None:
    bits = random.Random(10)
    assert min(strength(make(bits)) for _ in range(2000)) >= BITS_WANTED


@pytest.mark.parametrize(
    "make", [lambda bits: bits.randbytes(16).hex(), lambda bits: str(uuid.UUID(bytes=bits.randbytes(16)))]
)
def test_half_as_many_bits_are_taken_too(make: Callable[[random.Random], str]) -> None:
    """Of a few hundred of them one looks as if it had a word or a year in it."""
    bits = random.Random(10)
    refused = [one for one in (make(bits) for _ in range(2000)) if strength(one) < BITS_WANTED]
    assert len(refused) < 20


def test_nine_words_by_dice_are_taken() -> None:
    check_strength("it", "correct horse battery staple lantern window pickle orbit glacier")


def test_token_new(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["gpuferry", "token", "new"])
    tokens = set()
    for _ in range(2):
        assert main.main() == 0
        tokens.add(capsys.readouterr().out.strip())
    assert len(tokens) == 2
    for token in tokens:
        check_strength("it", token)
