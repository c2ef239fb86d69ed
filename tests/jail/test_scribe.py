"""What processes in jails say goes through pipes: none of them spoils the log for others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.monitor.jail.clerk import BURST, FEW_BURST, LINE_MOST, RATE, Allowance, Clerk, Voice
from gpuferry.monitor.jail.scribe import Scribe

from tests.monitor.harness import wait_until


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def scribe(log: Path) -> Iterator[Scribe]:
    with log.open("wb") as output:
        keeping = Scribe(output)
        yield keeping
        keeping.close()
        assert keeping._clerk is None or keeping._clerk.wait(120) == 0


def said(log: Path, text: bytes) -> bytes:
    wait_until(lambda: text in log.read_bytes(), "what was said")
    return log.read_bytes()


def test_whole_lines_of_each_without_what_steers_a_terminal(scribe: Scribe, log: Path) -> None:
    one, other = scribe.voice(), scribe.voice()
    os.write(one, b"half ")
    os.write(other, b"\x1b[2Jother\n")
    said(log, b"?[2Jother\n")
    os.write(one, "wörd\x9b\n".encode())
    said(log, "half wörd?\n".encode())
    os.write(one, b"last")
    for descriptor in (one, other):
        os.close(descriptor)
    assert said(log, b"last\n").startswith(b"?[2Jother\nhalf ")


def test_nothing_that_one_does_to_its_own_is_done_to_others(scribe: Scribe, log: Path) -> None:
    hostile, other = scribe.voice(), scribe.voice()
    os.set_blocking(hostile, False)
    assert os.get_blocking(other)
    with pytest.raises(OSError):  # noqa: PT011
        os.ftruncate(hostile, 0)
    os.close(hostile)
    os.write(other, b"fine\n")
    said(log, b"fine\n")
    os.close(other)


def test_one_that_reads_its_own_pipe_keeps_nobody_waiting() -> None:
    """Who has the monitor's user can open the other end, and take what the clerk was just told of."""
    control, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    with control, ours:
        clerk = Clerk(control)
        socket.send_fds(ours, [b"v"], [reading])
        clerk._take(control)
        (descriptor,) = clerk._voices
        assert not os.get_blocking(descriptor)
        clerk._hear(descriptor)
        assert descriptor in clerk._voices
        for each in (descriptor, reading, writing):
            os.close(each)


def test_a_clerk_that_is_gone_is_replaced(scribe: Scribe, log: Path) -> None:
    os.close(scribe.voice())
    assert scribe._clerk
    scribe._clerk.kill()
    scribe._clerk.wait()
    voice = scribe.voice()
    os.write(voice, b"to the next\n")
    said(log, b"to the next\n")
    os.close(voice)


def test_one_that_says_too_much_is_heard_as_far_as_it_may() -> None:
    line = b"x" * 1023 + b"\n"
    voice = Voice(0.0)
    written = sum(len(voice.said(line, 0.0)) for _ in range(3 * BURST // len(line)))
    assert BURST - len(line) <= written <= BURST
    assert voice.rests
    later = voice.said(line, 1.0)
    assert later == b""  # until it has been quiet for a while
    told, _, rest = voice.said(line, 2 * BURST / RATE).partition(b"\n")
    assert b"bytes that an API server said are left out" in told
    assert rest == line
    assert not voice.rests


def test_one_process_after_another_says_no_more_than_all_may() -> None:
    """Each had a burst of its own, and a program may start 56 a second. Who says little is heard anyway."""
    line, everybody = b"x" * 1023 + b"\n", Allowance(RATE, 4 * BURST, 0.0)
    voices = [Voice(0.0, everybody) for _ in range(20)]
    written = sum(len(voice.said(line, 0.0)) for voice in voices for _ in range(BURST // len(line)))
    assert written <= 4 * BURST + len(voices) * FEW_BURST
    assert voices[-1].said(line, 0.0) == b""
    assert Voice(0.0, everybody).said(line, 0.0) == line


def test_a_line_without_end_takes_no_memory() -> None:
    voice = Voice(0.0)
    for _ in range(10):
        voice.said(b"x" * (LINE_MOST // 2), 0.0)
        assert len(voice._held) <= LINE_MOST


def test_what_was_left_out_is_told_at_the_end() -> None:
    voice = Voice(0.0)
    for _ in range(2):
        voice.said(b"x" * BURST + b"\n", 0.0)
    assert b"left out" in voice.said(b"", 0.0)
