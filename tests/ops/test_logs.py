"""What a log line looks like, and what is never in one."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from gpuferry.monitor.cli.errors import say
from gpuferry.monitor.cli.tables import print_table
from gpuferry.monitor.service import logs

from tests.helpers import processes
from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest, Refused

SECRET = token_of("somebody")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    logs._secrets.clear()
    logging.getLogger().removeHandler(logs.libraries)
    structlog.reset_defaults()


def test_errors_of_commands_show_what_others_say_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    say("the function said \x1b[2J\x07", "and\x9b1m more\nhere")
    said = capsys.readouterr().err
    assert said == "gpuferry: the function said \ufffd[2J\ufffd\n  and\ufffd1m more\nhere\n"


def test_tables_show_what_others_say_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "PURPOSE"), [("\x1b[2Jgpu-a", "server")])
    assert capsys.readouterr().out == "NAME       PURPOSE\n\ufffd[2Jgpu-a  server\n"


def test_json_lines_with_the_houses_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    structlog.get_logger().info("session granted", server=7, peer="unix", gpu=1, session=3)
    structlog.get_logger().debug("not this one")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert list(entry) == ["ts", "level", "event", "session", "gpu", "server", "peer"]
    assert entry["level"] == "info"
    assert entry["ts"].endswith("Z")


@pytest.mark.parametrize("form", ["json", "text"])
def test_escape_sequences_of_others_are_not_obeyed(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure("info", form)
    structlog.get_logger().info("migration over", reason="\x1b[2Jgone\x07 \x9b1m")
    line = capsys.readouterr().err
    assert "gone" in line
    assert all(letter.isprintable() or letter == "\n" for letter in line)


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_libraries_say_is_bounded_and_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A stranger's request can be the reason for a traceback of aiohttp's, or of gRPC's."""
    monkeypatch.setattr(logs, "libraries", logs.Libraries())
    logs.configure("info", form)
    logs.hide(SECRET)
    library = logging.getLogger("gpuferry.test.library")
    for _ in range(1000):
        try:
            raise ValueError(f"\x1b[2Jbad {SECRET}")
        except ValueError:
            library.exception("failed \x07")
    logging.getLogger().removeHandler(logs.libraries)
    text = capsys.readouterr().err
    assert "bad" in text
    assert "Traceback" in text
    assert SECRET not in text
    assert text.count("failed") < 50
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "text")
    structlog.get_logger().debug("session granted", session=3)
    line = capsys.readouterr().err
    assert "session granted" in line
    assert "session=3" in line
    assert "\x1b" not in line


def test_no_secret_that_json_writes_in_another_way(capsys: pytest.CaptureFixture[str]) -> None:
    secret = 'a"b\\c\u00e4'
    logs.configure("debug", "json")
    logs.hide(secret)
    structlog.get_logger().info(f"message {secret}", peer=secret)
    entry = json.loads(capsys.readouterr().err)
    assert (entry["event"], entry["peer"]) == (f"message {logs.HIDDEN}", logs.HIDDEN)


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_however_it_comes_there(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure("debug", form)
    logs.hide(SECRET)
    log = structlog.get_logger()
    log.info("value", peer=SECRET)
    log.info("inside", command=["run", f"--x={SECRET}"])
    log.info(f"message {SECRET}")
    log.info("key", token="another secret", proof=b"bytes")
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        log.exception("failed")
    text = capsys.readouterr().err
    assert SECRET not in text
    assert "another secret" not in text
    assert "bytes" not in text
    assert text.count(logs.HIDDEN) >= 6


def test_a_monitors_log_at_its_loudest(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(SECRET + "\n")
    token_file.chmod(0o644)
    with harness.monitor("--log-level", "debug", "--token-file", str(token_file)) as monitor:
        monitor.wait_idle(2)
        with FakeGuest(monitor.address, SECRET):
            pass
        with pytest.raises(Refused):
            FakeGuest(monitor.address, "not-the-token-of-this-monitor")
        command_lines = []
        for pid in processes.descendants(monitor.process.pid):
            for file in ("cmdline", "environ"):
                with contextlib.suppress(OSError):  # one that served may be about to end
                    command_lines.append(Path(f"/proc/{pid}/{file}").read_bytes())
        assert command_lines
        monitor.wait_for_log("session started")
        monitor.stop()
        text = monitor.log.read_text()
    entries = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {"listening", "session started"} <= {entry["event"] for entry in entries}
    assert all({"ts", "level", "event"} <= entry.keys() for entry in entries)
    assert [entry["reason"] for entry in entries if entry["event"] == "a secret is in reach of others"] == [
        f"{token_file}: others can read it (mode 0644)"
    ]
    assert SECRET not in text
    assert not [line for line in command_lines if SECRET.encode() in line]
