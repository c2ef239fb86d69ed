"""Servers that answer a guest's wish to go on with nonsense."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from gpuferry.monitor.door.handshake import CudaError, Reason
from gpuferry.specs._generated import frames
from gpuferry.specs._generated.frames import Frame as Op

from tests.guest.conftest import run_guest
from tests.guest.fake_server import Answer, FakeServer, Frame, greeting
from tests.helpers.running import Outcome

from .running import RECONNECT

UNAVAILABLE = 46


class Liar(FakeServer):
    """Hangs up at the first cuCtxSynchronize; then answers each RESUME with the next of `replies`."""

    def __init__(self, path: Path) -> None:
        self.replies: list[str] = []
        self.resumes = 0
        self.key = b""
        self.grace = 60_000
        super().__init__(path, answer=self._hang_up)

    def _hang_up(self, frame: Frame) -> Answer | None:
        if frame.name != "cuCtxSynchronize":
            return Answer()
        if self.replies == ["acknowledge too much"]:
            self.send(Op.ACKNOWLEDGE, frames.Acknowledge(1 << 40).pack())
            return None
        raise ConnectionError

    def _welcome(self) -> bytes:
        assert self.hello
        self.key = hmac.digest(self.token, frames.KEY_RESUME + self.nonce + self.hello.nonce, hashlib.sha256)
        welcome = super()._welcome()
        told = frames.Welcome.unpack(welcome)._replace(resume_ms=self.grace)
        return told.pack() + welcome[told.SIZE :]

    def _session(self) -> None:
        if not self.key:
            super()._session()
            return
        self.send(Op.GREETING, greeting(self.nonce))
        _, _, _, body = self._frame()
        assert len(body) == frames.Resume.SIZE
        self.resumes += 1
        key, received, reply = self.key, 0, self.replies.pop(0)
        if reply == "come again":
            self.send(Op.REFUSED, frames.Refused(Reason.SHUTTING_DOWN, 0).pack() + b"not yet")
            return
        if reply == "too late":
            self.send(
                Op.REFUSED, frames.Refused(Reason.MALFORMED, CudaError.SYSTEM_NOT_READY).pack() + b"too late"
            )
            return
        if reply == "over":
            self.send(Op.REFUSED, frames.Refused(Reason.NO_SESSION, 0).pack() + b"it is over")
            return
        if reply == "silence":
            self._frame()  # for ever
        if reply == "wrong key":
            key = b"x" * 32
        if reply == "too much":
            received = 1 << 40
        proof = hmac.digest(key, frames.PROOF_RESUMED + self.nonce + body, hashlib.sha256)
        self.send(Op.RESUMED, frames.Resumed(proof, received).pack())
        self._frame()


@pytest.fixture
def liar() -> Iterator[Liar]:
    with TemporaryDirectory(prefix="gpuferry-fake-") as folder:
        fake = Liar(Path(folder) / "socket")
        yield fake
        fake.close()


def guest(liar: Liar) -> Outcome:
    """Prints what the call answers that is under way when the connection breaks, and the next."""
    code = 'start(); print(cu("cuCtxSynchronize"), cu("cuCtxSynchronize"))'
    return run_guest(liar, code, **RECONNECT)


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        (["acknowledge too much"], "malformed (acknowledgement"),
        (["wrong key"], "does not know this session's key"),
        (["too much"], "did not get what it says it got"),
        (["over"], "it is over"),
        (["come again", "come again", "over"], "it is over"),
        (["too late", "over"], "it is over"),
        (["silence"], "timed out"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_the_guest_gives_up(liar: Liar, replies: list[str], words: str) -> None:
    """With an error, and says why; what is no final answer makes it ask again."""
    liar.replies = list(replies)
    if "silence" in replies:
        liar.grace = 2000
    outcome = guest(liar)
    assert outcome.stdout == f"{UNAVAILABLE} {UNAVAILABLE}\n", outcome.stderr
    assert words in outcome.stderr
    assert liar.resumes == (0 if "acknowledge" in replies[0] else len(replies))
