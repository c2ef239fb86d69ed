"""What a guest says of its program and of what it wants, whatever the file's name and the locale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpuferry.guest.endpoint import first_line, read_token
from gpuferry.guest.units import parse_size

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer
from tests.helpers import toolchain
from tests.helpers.running import guest_environment, run


@pytest.fixture(scope="module")
def comma(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a locale that writes 1,5."""
    folder = tmp_path_factory.mktemp("locales")
    if not (shutil.which("localedef") and Path("/usr/share/i18n/locales/de_DE").exists()):
        pytest.skip("no localedef that makes a German locale")
    subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"], check=True, timeout=60
    )
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (b"caf\xe9", "caf?"),
        ("学".encode() * 60, "学" * 42),
        (b"two\nlines\xc3", "two?lines?"),
        (b"\xed\xa0\x80\xf0\x8f\xbf\xbf\xc0\xaf", "???" + "????" + "??"),
        (b"x" * 200, "x" * 128),
    ],
)
def test_a_program_may_have_any_name(server: FakeServer, tmp_path: Path, name: bytes, said: str) -> None:
    source = tmp_path / "init.c"
    source.write_text("unsigned cuInit(unsigned);\nint main(void) { return (int)cuInit(0); }\n")
    program = os.path.join(os.fsencode(tmp_path), name)
    shutil.copy(os.fsencode(toolchain.program(source)), program)
    outcome = run([os.fsdecode(program)], guest_environment(server.settings))
    assert (outcome.status, outcome.stderr) == (0, "")
    assert server.hellos[0].program == said


@pytest.mark.parametrize("said", ["secret\n", " secret \r\n", "secret\n# of the monitor in room 7\n"])
def test_a_token_has_blanks_around_it(server: FakeServer, guest: Guest, tmp_path: Path, said: str) -> None:
    """Kubernetes' secrets end with a newline more often than not."""
    assert first_line(said) == server.token.decode()
    assert guest("start()", GPUFERRY_TOKEN=said).status == 0
    file = tmp_path / "token"
    file.write_text(said)
    assert guest("start()", GPUFERRY_TOKEN=" \n", GPUFERRY_TOKEN_FILE=str(file)).status == 0
    assert read_token(str(file)) == server.token.decode()


def test_a_token_comes_through_a_pipe_in_pieces(server: FakeServer, tmp_path: Path) -> None:
    """As that of a shell's <(command)."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feed = f"exec 3> {pipe}; printf sec >&3; sleep 0.2; echo ret >&3"
    with subprocess.Popen(["sh", "-c", feed]):
        settings = server.settings | {"GPUFERRY_TOKEN": "", "GPUFERRY_TOKEN_FILE": str(pipe)}
        source = "import ctypes; exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        outcome = run([sys.executable, "-c", source], guest_environment(settings))
    assert (outcome.status, outcome.stderr) == (0, "")


def test_a_token_that_is_too_long_is_not_cut(guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s" * 5000)
    for settings in (
        {"GPUFERRY_TOKEN": "s" * 5000},
        {"GPUFERRY_TOKEN": "", "GPUFERRY_TOKEN_FILE": str(file)},
    ):
        outcome = guest('print(cu("cuInit", 0))', **settings)
        assert outcome.stdout == "46\n"
        assert "longer than 4094 bytes" in outcome.stderr


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:70000", "http://127.0.0.1:7070", "127.0.0.1:7070/", "127.0.0.1:7070\n", "[::1]", "h:web"],
)
def test_what_is_no_address_is_called_so(guest: Guest, address: str) -> None:
    """Of a port above 65535 the system takes the rest: somebody else's."""
    outcome = guest('print(cu("cuInit", 0))', GPUFERRY_MONITOR=address)
    assert outcome.stdout == "802\n"
    assert "it is neither host:port, tls://host:port nor unix:/path" in outcome.stderr


def test_a_long_name_of_a_function_ends_with_a_character(server: FakeServer, guest: Guest) -> None:
    assert guest("start()", GPUFERRY_FUNCTION="x" + "é" * 100).status == 0
    assert server.hellos[0].function == "x" + "é" * 31


SIZES = ["2GB", "2gb", "2 GB", "1.5GiB", "512M", "512MiB", "64k", "1T", "3000000", "7b", " 1g\n"]


@pytest.mark.parametrize("text", SIZES)
def test_a_size_means_what_it_means_in_a_command(server: FakeServer, guest: Guest, text: str) -> None:
    assert guest("start()", GPUFERRY_MEMORY=text).status == 0
    assert server.hellos[0].memory == parse_size(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "0x10", "1e3", "G", "1.5.2", "2GiBs", "2ib2", "1,5G"])
def test_what_is_no_size_is_said(server: FakeServer, guest: Guest, text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)
    outcome = guest("start()", GPUFERRY_MEMORY=text)
    assert outcome.status == 0
    assert f"GPUFERRY_MEMORY={text} is not a size" in outcome.stderr
    assert server.hellos[0].memory == 0


def test_more_than_there_can_be_is_not_little(server: FakeServer, guest: Guest) -> None:
    assert guest("start()", GPUFERRY_MEMORY="99999999T").status == 0
    assert server.hellos[0].memory == (1 << 64) - 1


@pytest.mark.system
def test_a_program_whose_locale_writes_a_comma(
    server: FakeServer, guest: Guest, comma: dict[str, str], tmp_path: Path
) -> None:
    told = tmp_path / "stats.json"
    wanted = {"GPUFERRY_MEMORY": "1.5GiB", "GPUFERRY_MAX_WAIT": "0.5", "GPUFERRY_STATS": str(told)}
    lines = 'import locale; locale.setlocale(locale.LC_ALL, ""); assert locale.str(1.5) == "1,5"; start()'
    outcome = guest(lines, **wanted, **comma)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert server.hellos[0].memory == 3 << 29
    assert json.loads(told.read_text())["seconds"]["total"] > 0
