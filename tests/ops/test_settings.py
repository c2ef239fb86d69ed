"""Where settings come from, and what is said about wrong ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpuferry.monitor.cli.app import app
from gpuferry.monitor.cluster.key import read_cluster_key
from gpuferry.monitor.cluster.membership import lets_somebody_in
from gpuferry.monitor.cluster.registry.config import RegistryOptions
from gpuferry.monitor.door.credentials import LocalTenants
from gpuferry.monitor.service import descriptors
from gpuferry.monitor.settings import options
from gpuferry.monitor.settings.errors import ConfigError, UsageError
from gpuferry.monitor.settings.folders import state_directory
from gpuferry.monitor.settings.monitor import check_turns
from gpuferry.monitor.settings.monitor_options import MonitorOptions, default_control, default_socket
from gpuferry.monitor.settings.options import option, options_of
from gpuferry.monitor.settings.sources import load
from gpuferry.monitor.store.interface import StoreError
from typer.testing import CliRunner

from tests.monitor import harness

SETTINGS = [
    (table, entry)
    for table, program in ((MonitorOptions, "monitor"), (RegistryOptions, "registry"))
    for entry in options_of(table, program)
]


@dataclass(frozen=True)
class Example:
    """One option of each kind."""

    listen: str | None = option(options.optional(options.address(unix=False)), "127.0.0.1:1", "h")
    pool: int = option(options.count(1), 2, "h")
    wait: float = option(options.seconds(), 1.0, "h")
    memory: int = option(options.size(), 0, "h")
    level: str = option(options.choice("low", "high"), "low", "h", "EXAMPLE_LEVEL")
    backfill: bool = option(options.switch(), False, "h")
    labels: Mapping[str, str] = option(options.mapping(), {}, "h")
    place: str = option(options.path(), lambda: "/computed", "h")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GPUFERRY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def toml(folder: Path, text: str) -> str:
    file = folder / "some.toml"
    file.write_text(text)
    return str(file)


def value(settings: Any, name: str) -> tuple[Any, str]:
    return getattr(settings.values, name), settings.sources[name]


def test_a_flag_before_a_variable_before_a_file_before_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = toml(tmp_path, "pool = 3\nwait = 3\nmemory = '3'\n")
    monkeypatch.setenv("GPUFERRY_TEST_POOL", "4")
    monkeypatch.setenv("GPUFERRY_TEST_WAIT", "4")
    settings = load(Example, "test", {"pool": "5"}, file)
    assert value(settings, "pool") == (5, "flag --pool")
    assert value(settings, "wait") == (4.0, "environment variable GPUFERRY_TEST_WAIT")
    assert value(settings, "memory") == (3, f"{file}:3")
    assert value(settings, "level") == ("low", "default")
    assert value(settings, "place") == ("/computed", "default")


def test_the_users_file_goes_before_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gpuferry.monitor.settings.sources.SYSTEM", tmp_path)
    (tmp_path / "test.toml").write_text("pool = 6\nwait = 6\n")
    users = tmp_path / "config" / "gpuferry" / "test.toml"
    users.parent.mkdir(parents=True)
    users.write_text("\npool = 7\n")
    settings = load(Example, "test")
    assert value(settings, "pool") == (7, f"{users}:2")
    assert value(settings, "wait") == (6.0, f"{tmp_path / 'test.toml'}:2")


def test_every_kind_in_a_file(tmp_path: Path) -> None:
    text = """
listen = "none"
pool = 9
wait = 0.5
memory = "1.5GiB"
level = "high"
backfill = true
place = "~/x"
[labels]
zone = "a"
rack = "2"
"""
    values = load(Example, "test", config=toml(tmp_path, text)).values
    assert values == Example(
        None, 9, 0.5, 3 << 29, "high", True, {"zone": "a", "rack": "2"}, os.path.expanduser("~/x")
    )


def test_every_kind_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"LISTEN": "[::1]:5", "BACKFILL": "yes", "LABELS": "zone=a, rack=2", "PLACE": "/x/../y"}
    for name, text in given.items():
        monkeypatch.setenv(f"GPUFERRY_TEST_{name}", text)
    monkeypatch.setenv("EXAMPLE_LEVEL", "high")
    values = load(Example, "test").values
    assert (values.listen, values.backfill, values.level) == ("[::1]:5", True, "high")
    assert (values.labels, values.place) == ({"zone": "a", "rack": "2"}, "/y")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("pool = 2\n\npol = 3", 3, "unknown key pol: did you mean pool?"),
        ("max-wait = 1", 1, "unknown key max-wait: did you mean wait?"),
        ("# c\npool = '3'", 2, "'3' is text: a whole number is wanted"),
        ("pool = true", 1, "True is true or false: a whole number"),
        ("color = 'red'", 1, "unknown key color: known are backfill, "),
        ("pool = 0", 1, "at least 1"),
        ("wait = -1", 1, "out of range: at least 0 s is wanted"),
        ("wait = nan", 1, "out of range: at least 0 s is wanted"),
        ("wait = inf", 1, "out of range: at most 1e+09 s is possible"),
        ("level = 'middle'", 1, "choose one of low, high"),
        ("memory = '''\nmuch'''", 1, "no size"),
        ("pool = 1\nlisten = 'here'", 2, "HOST:PORT"),
        ("listen = 'unix:/x'", 1, "HOST:PORT is wanted"),
        ("labels = 'zone'", 1, "a table is wanted"),
        ("backfill = 'yes'", 1, "true or false is wanted"),
        ("pool = 1\n\ntoken = 'x'", 3, "a secret does not belong here"),
        ("pool = 1\n[wait]\nx = 1", 2, "a number is wanted"),
        ("pool = 1\npool = 2", 2, "not TOML"),
        ("pool = 1\n\nnonsense\n", 3, "not TOML"),
        ("pool = [1,\n", 1, "not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(Example, "test", config=file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert words in str(caught.value)


_OTHER_LOCALE = """
import pathlib, sys
from gpuferry.monitor.service import files
from gpuferry.monitor.settings import sources
file = pathlib.Path(sys.argv[1])
files.write_atomically(file, "# f\\u00fcr alle\\n")
print(sources._read_file(file, {}))
"""


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    read = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", _OTHER_LOCALE, str(file)],
        env=harness.environment(str(tmp_path), LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8=None),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (read.stdout, read.stderr) == ("{}\n", "")
    assert file.read_bytes() == "# f\u00fcr alle\n".encode()


@pytest.mark.parametrize(
    ("name", "most", "more", "words"),
    [
        ("tokens", "4294967295", "4294967296", "4294967296 is too many"),  # it ended the monitor, each time
        (
            "oversubscribe",
            "1000000.0",
            "1e12",
            "1e12 is out of range: at most 1e.06 is possible",
        ),  # as did this
        ("jail_uids", "4294967290:5", "4294967290:6", "numbers up to 4294967294 are possible"),
    ],
)
def test_what_no_system_has(name: str, most: str, more: str, words: str) -> None:
    assert str(getattr(load(MonitorOptions, "monitor", {name: most}).values, name)) == most
    with pytest.raises(UsageError, match=words):
        load(MonitorOptions, "monitor", {name: more})


def test_what_is_wrong_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--pool: 'x' is no whole number"):
        load(Example, "test", {"pool": "x"})
    with pytest.raises(UsageError, match=r"cannot read .*none.toml: No such file"):
        load(Example, "test", config=str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b"place = '\xe9'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load(Example, "test", config=str(tmp_path / "latin.toml"))
    with monkeypatch.context() as elsewhere:  # no other user's folder keeps root out
        elsewhere.setenv("XDG_CONFIG_HOME", str(tmp_path / ("long" * 100)))
        with pytest.raises(UsageError, match=r"cannot read .*/test\.toml: File name too long"):
            load(Example, "test")
    monkeypatch.setenv("GPUFERRY_TEST_POOL", "0")
    with pytest.raises(UsageError, match="environment variable GPUFERRY_TEST_POOL: 0 is too few"):
        load(Example, "test")


def test_defaults_are_right_by_their_own_rules() -> None:
    """What `config show` prints can be written in a flag."""
    for table, entry in SETTINGS:
        default = getattr(table(), entry.name)
        assert entry.kind.parse("none" if default is None else str(default)) == default, entry.name
        assert entry.help, entry.name


def test_no_option_holds_a_secret() -> None:
    for _, entry in SETTINGS:
        if entry.name == "tokens":  # those of turns: a number
            continue
        if any(word in entry.name for word in ("token", "key", "secret", "password")):
            assert entry.kind.metavar == "FILE", entry.name


def test_config_show(tmp_path: Path) -> None:
    file = toml(tmp_path, "pool = 3\n")
    changes = {"GPUFERRY_MONITOR_GRACE": "7", "GPUFERRY_TOKEN": "s" * 40}
    shown = harness.gpuferry(str(tmp_path), "config", "show", "--json", "--config", file, **changes)
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["schema"] == "gpuferry.config/1"
    found = {entry["name"]: (entry["value"], entry["source"]) for entry in report["settings"]}
    assert found["pool"] == (3, f"{file}:1")
    assert found["grace"] == (7.0, "environment variable GPUFERRY_MONITOR_GRACE")
    assert found["socket"] == (f"{tmp_path}/session.sock", "default")
    assert found["token"] == ("(hidden)", "environment variable GPUFERRY_TOKEN")
    table = harness.gpuferry(str(tmp_path), "config", "show", "--config", file, **changes).stdout
    assert f"{file}:1" in table
    assert "s" * 40 not in table + shown.stdout


def test_config_path(tmp_path: Path) -> None:
    shown = harness.gpuferry(
        str(tmp_path), "config", "path", GPUFERRY_CONFIG=None, XDG_CONFIG_HOME=str(tmp_path)
    )
    assert shown.stdout.splitlines()[1] == f"{tmp_path}/gpuferry/monitor.toml (does not exist)"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["config", "show", "nonsense"], 2, "no such program"),
        (["config", "show", "--config", "/none.toml"], 2, "cannot read /none.toml"),
        (["monitor", "--config", "/none.toml"], 2, "cannot read /none.toml"),
        (["monitor", "--pool", "many"], 2, "--pool: 'many' is no whole number"),
        (["service", "show", "nonsense"], 2, "no such service"),
    ],
)
def test_used_wrongly(tmp_path: Path, arguments: list[str], status: int, words: str) -> None:
    completed = harness.gpuferry(str(tmp_path), *arguments)
    assert completed.returncode == status
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not completed.stdout


def test_turns_that_nobody_could_take_are_refused() -> None:
    check_turns(MonitorOptions(sharing="time", quota=0.1, window=1.0))
    check_turns(MonitorOptions(sharing="turns", quota=0.0))
    for quota in (0.0, 2.0):
        with pytest.raises(ConfigError, match="--sharing time"):
            check_turns(MonitorOptions(sharing="time", quota=quota, window=1.0))


def test_what_is_shown_is_read_again() -> None:
    for table, entry in SETTINGS:
        default = getattr(table(), entry.name)
        if default is not None and dict not in entry.kind.toml:
            assert entry.kind.parse(entry.kind.show(default)) == default, entry.name


def test_help_lists_each_option_under_its_topic() -> None:
    text = CliRunner().invoke(app, ["monitor", "--help"], terminal_width=100).output
    sections = re.split(r"^(\S.*):$", text, flags=re.MULTILINE)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    for entry in options_of(MonitorOptions, "monitor"):
        assert f"  {entry.flag} " in told[entry.topic], entry.name
    assert "--config FILE" in told["Options"]


def test_a_state_folder_that_nobody_can_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that `sudo gpuferry monitor` has made: root may all, so a name that is too long stands for it.
    It was a traceback, and of a disk that went away the end of a monitor that ran.
    """
    unseen = tmp_path / ("n" * 300)
    with pytest.raises(ConfigError, match=r"cluster\.key: File name too long") as caught:
        read_cluster_key(None, unseen)
    assert "--state" in caught.value.hint
    with pytest.raises(StoreError, match="File name too long"):
        asyncio.run(LocalTenants(unseen / "gpuferry.db").store())
    assert read_cluster_key(None, tmp_path / "none") is None
    (tmp_path / "gpuferry.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match=r"tokens of tenants cannot be read: .*gpuferry\.db: "):
        lets_somebody_in(MonitorOptions(state=str(tmp_path)))
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(ConfigError, match="no home folder"):
        state_directory()


def test_a_runtime_folder_is_named_to_programs_that_begin_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", "run")
    assert default_socket() == f"{tmp_path}/run/session.sock"
    assert default_control() == f"unix:{tmp_path}/run/control.sock"


def test_too_few_descriptors_are_said_to_be_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (16, 16))
    with pytest.raises(ConfigError, match="may have 16 descriptors: 128 at least"):
        descriptors.raise_limit()
