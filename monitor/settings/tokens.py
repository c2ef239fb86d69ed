"""What a secret must be like to be one: whoever sees a proof can try out secrets, a billion in a second."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .errors import ConfigError

BITS_WANTED = 72.0  # by this count; what a generator made of 128 bits has more, but for one in a thousand
_CHUNK = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_RUN = re.compile(r"[A-Z]?[a-z]{4,}|(?:19|20)[0-9]{2}(?![0-9])|[a-z]+|[A-Z]+|[0-9]+")


def _worth(run: str, alone: bool) -> float:
    """The bits of letters or digits in a row. `alone`: between them and others are only separators."""
    if alone or (run.isalpha() and len(run) > 4):
        return min(2.0 * len(run), 10.0)  # a word
    if run.isdecimal():
        return 6.0 if len(run) == 4 else min(3.3 * len(run), 20.0)  # of four: most often a year
    return 4.7 * len(run)


def _parts(secret: str) -> Iterator[tuple[str, float]]:
    for chunk in _CHUNK.findall(secret):
        alone = bool(_WORD.fullmatch(chunk))
        for run in [chunk] if alone else _RUN.findall(chunk):
            yield run.lower(), _worth(run, alone)


def strength(secret: str) -> float:
    """The bits of a secret, as few as somebody who guesses well would need.

    Words and numbers count as much as there are to choose from, and once. What repeats itself counts no more
    than what it repeats.
    """
    bits, seen = 0.0, set()
    for part, worth in _parts(secret):
        bits += 1.0 if part in seen and len(part) > 2 else worth
        seen.add(part)
    pairs = {secret[place : place + 2] for place in range(len(secret) - 1)}
    return min(bits, 5.0 * len(pairs))


def check_strength(what: str, secret: str) -> None:
    """Raise ConfigError if somebody could guess the secret, or it is no text. `what` names it, and does not
    hold it.
    """
    try:
        secret.encode()
    except UnicodeEncodeError:  # bytes of a variable that are no UTF-8
        raise ConfigError(f"{what} is no text", "`gpuferry token new` prints one that is") from None
    if strength(secret) < BITS_WANTED:
        raise ConfigError(
            f"{what} can be guessed: whoever sees one handshake may try out billions of them",
            "`gpuferry token new > FILE` makes one that nobody guesses; keep the file with mode 0600",
        )
