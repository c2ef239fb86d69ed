"""Signed calls and sealed answers: who holds the cluster key controls the registry, and believes it. No I/O.

A call is signed over its method, its bytes, a nonce, and a challenge that one replica made up a short time
ago: it is worth nothing at another replica, after a restart, later, or again, whatever any clock says.
An answer is sealed over its bytes and the call that it answers. Nothing of this hides anything: TLS does.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SCHEME = "gpuferry-2"
SCHEMES = "gpuferry-"  # of all releases
TOGETHER = "registry, GPU servers and command line are upgraded together"
CHALLENGE = "gpuferry-challenge"  # with a refusal: sign with this one instead
SEAL = "gpuferry-seal"  # with an error: it is the registry's own
CHALLENGE_SECONDS = 60.0
# The seal is the last field of an answer, number 90 and of 32 bytes, which who does not look for it ignores.
SEAL_HEAD = b"\xd2\x05\x20"
SEAL_SIZE = len(SEAL_HEAD) + hashlib.sha256().digest_size

Metadata = tuple[tuple[str, str], ...]


class Forged(Exception):
    """What answers does not hold the cluster key, or answers something else."""


@dataclass
class Call:
    """One call, as both of its ends know it."""

    key: bytes = field(repr=False)
    method: str  # /package.Service/Method
    challenge: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    _answers: int = 0

    def _mac(self, what: str, *more: object, over: bytes) -> bytes:
        words = (f"gpuferry {what} 2", self.method, self.challenge, self.nonce, *more)
        head = "".join(f"{word}\0" for word in words).encode()
        return hmac.digest(self.key, head + over, hashlib.sha256)

    def signature(self, request: bytes) -> str:
        """What proves that the caller holds the key."""
        return self._mac("call", over=request).hex()

    def metadata(self, request: bytes) -> Metadata:
        """What is sent along with the request."""
        words = (SCHEME, self.challenge or "-", self.nonce, self.signature(request))
        return (("authorization", " ".join(words)),)

    def _seal(self, answer: bytes) -> bytes:
        self._answers += 1
        return SEAL_HEAD + self._mac("answer", self._answers, over=answer)

    def seal(self, answer: bytes) -> bytes:
        """The next answer with its seal behind it."""
        return answer + self._seal(answer)

    def open(self, sealed: bytes) -> bytes:
        """The next answer without its seal. Raises Forged."""
        answer, seal = sealed[:-SEAL_SIZE], sealed[-SEAL_SIZE:]
        if not hmac.compare_digest(seal, self._seal(answer)):
            raise Forged("its answer is not sealed with the cluster key")
        return answer

    def seal_of_error(self, code: str, text: str) -> str:
        """What proves that an error, gRPC's name of it and a text, comes from a registry of the cluster."""
        return self._mac("error", code, over=text.encode()).hex()


class Caller:
    """A caller's side: which challenge each replica wants to see."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._challenges: dict[str, str] = {}

    def begin(self, replica: str, method: str) -> Call:
        """A call to this replica, of `/package.Service/Method`."""
        return Call(self._key, method, self._challenges.get(replica, ""))

    def learns(self, replica: str, call: Call, trailing: Any) -> bool:
        """Whether the replica refused the call for its challenge alone: then another may be begun.
        `trailing`: the refusal's metadata.
        """
        wanted = str(dict(trailing or ()).get(CHALLENGE, ""))
        if not wanted or wanted == call.challenge:
            return False
        self._challenges[replica] = wanted
        return True


@dataclass
class _Challenge:
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    seen: set[str] = field(default_factory=set)


class NotSigned(Exception):
    """Raised for a call that may not be served. `challenge`: what it could be signed with; empty: no help."""

    def __init__(self, challenge: str = "", text: str = "wrong cluster key") -> None:
        super().__init__(text)
        self.challenge = challenge


class Guard:
    """The registry's side: refuses what is not signed for this replica, now, and for the first time.

    `clock`: seconds since whenever.
    """

    def __init__(self, key: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = key
        self._clock = clock
        self._challenges = [_Challenge()]  # the newest, and the one before it
        self._since = clock()

    def _turn(self) -> None:
        """Nobody has to wait for the hand: who comes with the challenge of before is served as well."""
        age = self._clock() - self._since
        if age >= CHALLENGE_SECONDS:
            kept = self._challenges[:1] if age < 2 * CHALLENGE_SECONDS else []
            self._challenges = [_Challenge(), *kept]
            self._since = self._clock()

    def admit(self, method: str, metadata: Any, request: bytes) -> Call:
        """The call, whose answers it seals. Raises NotSigned."""
        self._turn()
        parts = str(dict(metadata or ()).get("authorization", "")).split(" ")
        if parts[0] != SCHEME and parts[0].startswith(SCHEMES):
            raise NotSigned(text=f"the registry is of another release: {TOGETHER}")
        if len(parts) != 4 or parts[0] != SCHEME:
            raise NotSigned
        _, name, nonce, signature = parts
        challenge = next((one for one in self._challenges if one.name == name), None)
        if challenge is None:
            raise NotSigned(self._challenges[0].name)
        call = Call(self._key, method, name, nonce)
        right = hmac.compare_digest(signature.encode(), call.signature(request).encode())
        if not right or nonce in challenge.seen:
            raise NotSigned
        challenge.seen.add(nonce)
        return call
