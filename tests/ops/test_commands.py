"""Every command used wrongly, as people do: one clear message, the right exit status, no traceback."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from gpuferry.guest.endpoint import Endpoint
from gpuferry.monitor.cli import functions_client, functions_serve, local, migrate, monitor, reach
from gpuferry.monitor.cli.app import app
from gpuferry.monitor.cli.errors import CliError, Exit, say
from gpuferry.monitor.cli.main import main
from gpuferry.monitor.cluster.key import read_cluster_key
from gpuferry.monitor.door.listener import listen_unix
from gpuferry.monitor.service.ports import add_port
from gpuferry.monitor.service.runtime import RuntimeDirectory
from gpuferry.monitor.service.versions import spec_hash
from gpuferry.monitor.settings import limits
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import choose_token

from tests.helpers.tokens import token_of
from tests.helpers.warm import CLI
from tests.monitor import harness

NOWHERE = "127.0.0.1:9"
NO_DESCRIPTOR = str(2**31 - 1)  # this process would become an API server if it were open
TOKEN = token_of("the monitor")


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command there is, so that new ones are looked at too."""
    below: dict[str, Any] = getattr(command, "commands", {})
    if not below:
        yield path
    for name in sorted(below):
        yield from verbs(below[name], (*path, name))


COMMANDS = list(verbs(typer.main.get_command(app)))


Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """A command in this process: a hundred interpreters would take their time."""
    for name in [name for name in os.environ if name.startswith("GPUFERRY_")]:
        monkeypatch.delenv(name)
    for name in ("GPUFERRY_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("GPUFERRY_TOKEN", TOKEN)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr("sys.argv", ["gpuferry", *arguments])
        status = main()
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run


@pytest.fixture
def short() -> Iterator[str]:
    """A folder whose name leaves room for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as folder:
        yield folder


def clean(completed: subprocess.CompletedProcess[str]) -> str:
    """What was said, which is no traceback and no box drawing."""
    assert "Traceback" not in completed.stderr, completed.stderr
    assert "─" not in completed.stderr
    assert TOKEN not in completed.stderr
    return completed.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(call: Call, command: tuple[str, ...]) -> None:
    completed = call(*command, "--help")
    assert completed.returncode == 0
    assert " ".join(("gpuferry", *command)) in completed.stdout
    assert not clean(completed)


@pytest.mark.parametrize("group", sorted({command[:-1] for command in COMMANDS}), ids=" ".join)
def test_the_help_of_a_group_says_all_of_what_its_verbs_do(call: Call, group: tuple[str, ...]) -> None:
    assert "..." not in call(*group, "--help").stdout.partition("Commands:")[2]


def test_the_help_of_the_monitor_names_every_limit(call: Call) -> None:
    told = " ".join(call("monitor", "--help").stdout.split())
    assert f"What tenants may have: {', '.join(limits.NAMES)};" in told


@pytest.mark.parametrize(
    ("command", "follows"),
    [(("token", "create"), False), (("tenant", "set"), False), (("server", "list"), True)],
)
def test_which_commands_follow_the_variable_of_the_registry(
    call: Call, command: tuple[str, ...], follows: bool
) -> None:
    """Tokens and limits are of this machine unless --registry is given: their help said otherwise."""
    assert ("GPUFERRY_REGISTRY]" in call(*command, "--help").stdout) is follows


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_wrong_usage(call: Call, command: tuple[str, ...]) -> None:
    completed = call(*command, "--no-such-option")
    assert completed.returncode == 2
    assert "no-such-option" in clean(completed)
    assert "usage" in completed.stderr.lower()
    assert not completed.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["no-such-verb"], 2, "No such command"),
        (["status"], 5, "start one with `gpuferry monitor`"),
        (["status", "--control", "gpu-server"], 2, "command line: 'gpu-server' is neither"),
        (["status", "--control", NOWHERE], 5, f"cannot reach the monitor at {NOWHERE}"),
        (["status", "--control", "unix:/no/such/socket"], 5, "/no/such/socket"),
        (["status", "--timeout", "-1"], 2, "--timeout"),
        (["status", "--timeout", "inf"], 2, "--timeout"),
        (["session", "kill", str(1 << 64)], 2, str((1 << 64) - 1)),
        (["migrate", "1", "--to", "gpu:99999999999"], 2, "no target"),
        (["session", "resume", "f", "--to", "gpu:1,2"], 2, "on one GPU"),
        (["session", "resume", "f", "--to", "gpu:any", "--control", NOWHERE], 5, "cannot reach the monitor"),
        (["session", "recall", "1", "--timeout", "0"], 2, "--timeout"),
        (["simulate", "--make-trace", "/no/such.csv", "--seed", "-1"], 2, "--seed"),
        (["tenant", "set", "acme", "--wall", "0"], 2, "write none for no limit"),
        (["tenant", "usage", "--since", "2026-02-30"], 2, "no such day"),
        (["server", "drain", "a:1", "--timeout", "0"], 2, "--timeout"),
        (["tls", "init", "--days", "5000000"], 2, "--days"),
        (["status", "stray"], 2, "stray"),
        (["run", "--monitor", "gpu-server", "--", "true"], 2, "command line: 'gpu-server'"),
        (
            ["run", "--monitor", NOWHERE, "--token-file", "/no/such", "--", "true"],
            6,
            "/no/such: No such file",
        ),
        (["env"], 5, "no monitor"),
        (["apiserver", "--device", "0", "--control-fd", NO_DESCRIPTOR], 2, "the monitor starts API servers"),
        (["completion", "ksh"], 2, "choose bash, zsh or fish"),
        (["simulate", "no-such-recipe"], 2, "choose from"),
        (["simulate", "--azure", "/no/such.csv"], 1, "/no/such.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_clear_message(call: Call, arguments: list[str], status: int, words: str) -> None:
    completed = call(*arguments)
    assert completed.returncode == status, completed.stderr
    assert words in clean(completed)
    assert not completed.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--control", NOWHERE, "--token-file", "{}"),
        ("run", "--monitor", NOWHERE, "--token-file", "{}", "--", "true"),
        ("functions", "list", "--server", NOWHERE, "--token-file", "{}"),
    ],
    ids=" ".join,
)
def test_a_token_that_is_no_text(call: Call, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As `openssl rand 32` makes one, or a shell that writes UTF-16."""
    file = tmp_path / "token"
    file.write_bytes("secret\n".encode("utf-16"))
    completed = call(*(argument.format(file) for argument in arguments))
    assert completed.returncode == 6
    assert f"cannot read the token: {file}: it is no text" in clean(completed)
    with pytest.raises(ConfigError, match="it is no text"):
        choose_token(str(file))


@pytest.mark.parametrize("command", [("status",), ("run", "--", "true"), ("env",)], ids=" ".join)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GPUFERRY_MONITOR=\xff\n", "{}/endpoint is damaged: it is no text"),
        (
            f"GPUFERRY_MONITOR={NOWHERE}\nGPUFERRY_CONTROL={NOWHERE}\n".encode(),
            "what is published in {} is damaged: it does not say GPUFERRY_TOKEN_FILE",
        ),
    ],
    ids=["no text", "no token"],
)
def test_a_damaged_endpoint(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    content: bytes,
    words: str,
) -> None:
    monkeypatch.delenv("GPUFERRY_TOKEN")
    tmp_path.chmod(0o700)
    (tmp_path / "endpoint").write_bytes(content)
    completed = call(*command)
    assert completed.returncode == 1
    assert words.format(tmp_path) in clean(completed)
    assert "it writes `endpoint` anew" in completed.stderr


def test_where_systemds_monitor_is_to_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another user's, and was said not to be there."""
    for variable in ("GPUFERRY_CONTROL", "GPUFERRY_MONITOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr(reach, "SERVICE", str(tmp_path))
    with pytest.raises(CliError) as found:
        reach.locate(None, None, "GPUFERRY_CONTROL")
    assert f"sudo -u gpuferry GPUFERRY_RUNTIME_DIR={tmp_path} gpuferry" in found.value.hint
    with pytest.raises(CliError) as found:  # of a program, which is not to run as that user
        reach.locate(None, None)
    assert "sudo" not in found.value.hint


@pytest.mark.parametrize("command", [("page",), ("server", "list")], ids=" ".join)
def test_a_damaged_endpoint_of_other_commands(call: Call, tmp_path: Path, command: tuple[str, ...]) -> None:
    for folder in (tmp_path, tmp_path / "registry"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        (folder / "endpoint").write_bytes(b"\xff\n")
    completed = call(*command)
    assert completed.returncode == 1
    assert "endpoint is damaged: it is no text" in clean(completed)


def test_published_files_that_are_gone(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFERRY_TOKEN")
    tmp_path.chmod(0o700)
    gone = tmp_path / "gone"
    entries = {"CONTROL": NOWHERE, "TOKEN_FILE": gone, "HTTP": NOWHERE, "PAGE_KEY_FILE": gone}
    lines = [f"GPUFERRY_{name}={value}\n" for name, value in entries.items()]
    (tmp_path / "endpoint").write_text("".join(lines))
    for command, what in (("status", "the token"), ("page", "the page's key")):
        assert f"cannot read {what}: {gone}: No such file" in clean(completed := call(command))
        assert "when it starts" in completed.stderr


def test_a_published_address_that_is_none(call: Call, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "endpoint").write_text("GPUFERRY_CONTROL=nowhere\n")
    completed = call("status")
    assert completed.returncode == 2
    assert f"{tmp_path}/endpoint: 'nowhere' is neither" in clean(completed)


@pytest.mark.parametrize("host", ["gpu..example", "a" * 64 + ".example"])
def test_a_name_that_no_machine_has(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Python has an error of its own for those, which is no OSError."""
    with pytest.raises(CliError, match="is no name of a machine") as caught:
        reach.greet(Endpoint(f"{host}:7700", "command line", TOKEN))
    assert caught.value.status == Exit.UNREACHABLE


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), ("nothing\n", "it holds no certificate in PEM")]
)
def test_an_authority_that_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, words: str
) -> None:
    """It said `no TLS there`, or that the monitor is no file."""
    file = tmp_path / "ca.crt"
    if content:
        file.write_text(content)
    monkeypatch.setenv("GPUFERRY_TLS_CA", str(file))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CliError) as caught:
            reach.greet(Endpoint(address, "command line", TOKEN))
    assert f"GPUFERRY_TLS_CA: {file}: {words}" in str(caught.value)


def test_a_name_that_no_certificate_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_TLS_NAME", ".example")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CliError, match=r"'\.example' is no name of a machine: check GPUFERRY_TLS_NAME"):
            reach.greet(Endpoint(address, "command line", TOKEN))


def test_names_of_folders_need_not_be_text(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    environment = harness.environment(str(tmp_path), GPUFERRY_MONITOR=NOWHERE, GPUFERRY_TOKEN=TOKEN)
    completed = subprocess.run(
        [*CLI, "env"],
        env={os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        | {b"LD_LIBRARY_PATH": folder},
        capture_output=True,
        timeout=240,
    )
    assert (completed.returncode, completed.stderr) == (0, b"")
    assert folder in completed.stdout


def test_nobody_is_told_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` did not become its program where stderr was closed and the monitor was away."""
    monkeypatch.setattr("sys.stderr", None)
    say("cannot reach the monitor", "is it running?")
    assert not capsys.readouterr().out


def test_a_file_is_looked_for_where_the_monitor_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("GPUFERRY_TOKEN", TOKEN)
    monkeypatch.setattr(migrate, "follow", lambda control, *_, **__: asked.append(control))
    with pytest.raises(CliError, match="cannot write into /no/such/folder"):
        migrate.suspend(1, "/no/such/folder/file", 0.0, NOWHERE, None, True)
    migrate.suspend(1, "/no/such/folder/file", 0.0, "gpu-server:7701", None, True)
    assert asked == ["gpu-server:7701"]


def test_a_command_in_a_variable_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_APISERVER", "valgrind 'python")
    with pytest.raises(CliError, match="variable GPUFERRY_APISERVER: No closing quotation"):
        monitor._command("GPUFERRY_APISERVER", "gpuferry.apiserver")


def test_a_private_monitor_says_nothing_to_systemd() -> None:
    """Which is to hear of the program."""
    assert {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} <= local._NOT_FOR_IT


def test_a_token_that_no_call_can_carry(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a word processor makes one of another: gRPC said `Invalid metadata`, HTTP that it is no latin-1."""
    monkeypatch.setenv("GPUFERRY_TOKEN", "\u201c0f1e\u201d")
    monkeypatch.setenv("GPUFERRY_FUNCTIONS_TOKEN", "\u201c0f1e\u201d")
    for command in (("status", "--control", NOWHERE), ("functions", "list", "--server", NOWHERE)):
        completed = call(*command)
        assert completed.returncode == 6
        assert "holds characters that no token has" in clean(completed)


def test_a_token_in_a_variable_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_TOKEN", os.fsdecode(TOKEN.encode() + b"\xff"))
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", os.fsdecode(TOKEN.encode() + b"\xff"))
    with pytest.raises(ConfigError, match="GPUFERRY_TOKEN is no text"):
        choose_token(None)
    with pytest.raises(ConfigError, match="GPUFERRY_CLUSTER_KEY is no text"):
        read_cluster_key(None, Path("/no/such/state"))


def test_a_token_in_a_variable_may_end_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a secret of Kubernetes does that was made from a file."""
    monkeypatch.setenv("GPUFERRY_FUNCTIONS_TOKEN", TOKEN + "\n")
    assert functions_serve._token(None) == (TOKEN.encode(), True)
    assert functions_client.locate(NOWHERE, None) == (NOWHERE, TOKEN)


def test_a_socket_takes_the_place_of_a_dead_one_alone(short: str) -> None:
    """A file was removed by `--control unix:FILE`, and a monitor's control socket by another monitor's."""
    path = Path(short, "notes")
    server: Any = SimpleNamespace(add_insecure_port=lambda _: pytest.fail("it took the place"))
    binds: list[Callable[[], object]] = [lambda: listen_unix(str(path)), lambda: add_port(server, path)]
    path.write_text("mine")
    for bind in binds:
        with pytest.raises(ConfigError, match="there is a file, which is no socket"):
            bind()
    assert path.read_text() == "mine"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen()
        for bind in binds:
            with pytest.raises(ConfigError, match="another monitor listens there"):
                bind()
    listen_unix(str(path)).close()


def test_a_folder_that_cannot_be_written(call: Call, tmp_path: Path) -> None:
    (tmp_path / "etc").write_text("a file where a folder is wanted")
    completed = call("service", "install", "monitor", "--root", str(tmp_path))
    assert completed.returncode == 1
    assert "cannot write" in clean(completed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["monitor"], "cannot make"),
        (["registry"], "cannot write"),
        (["token", "list"], "gpuferry.db: "),
        (["monitor", "--control", "unix:/no/such/folder/c.sock"], "for control: No such file"),
        (["monitor", "--socket", "/no/such/folder/s.sock"], "No such file"),
        (["monitor", "--http", "127.0.0.1:{taken}"], "Address already in use"),
        (["monitor", "--control", "127.0.0.1:{taken}"], "--control"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_daemon_cannot_have(short: str, tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "file").write_text("where a folder is wanted")
    runtime = f"{tmp_path}/file/run" if words == "cannot make" else f"{short}/run"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        given = [word.format(taken=holder.getsockname()[1]) for word in arguments]
        extra = ["--listen", "none"] if given[0] == "monitor" else []
        completed = harness.gpuferry(runtime, *given, *extra, GPUFERRY_STATE_DIR=f"{tmp_path}/file/state")
    assert completed.returncode == 1, completed.stderr
    assert words in clean(completed)
    assert len(completed.stderr.splitlines()) <= 2


def test_a_runtime_folder_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some file systems of a network are."""

    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    with pytest.raises(ConfigError, match=r"cannot lock .*: No locks available") as caught:
        RuntimeDirectory(tmp_path / "run")
    assert "GPUFERRY_RUNTIME_DIR" in caught.value.hint


def test_a_registry_leaves_room_for_a_monitor(tmp_path: Path) -> None:
    runtime = tmp_path / "base" / "run"
    RuntimeDirectory(runtime / "registry").close()
    RuntimeDirectory(runtime).close()
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700


@pytest.mark.some(3)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", [["config", "show"], ["version"], ["env", "--preload"], ["--help"]], ids=str
)
def test_nobody_reads_the_output(tmp_path: Path, command: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = harness.environment(str(tmp_path), PYTHONUNBUFFERED=unbuffered)
    try:
        completed = subprocess.run(
            [*CLI, *command], env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=240
        )
    finally:
        os.close(writing)
    assert (completed.returncode, completed.stderr) == (1, b"")


def test_no_room_for_the_output(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        completed = subprocess.run(
            [*CLI, "config", "show"],
            env=harness.environment(str(tmp_path)),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert completed.returncode == 1
    assert completed.stderr.count("\n") == 2
    assert "gpuferry: No space left" in clean(completed)


def test_what_the_output_has_no_letters_for(tmp_path: Path) -> None:
    """As that of a terminal in latin-1, where `top` ended with a UnicodeEncodeError."""
    settings = {"PYTHONIOENCODING": "latin-1", "GPUFERRY_MONITOR_SOCKET": f"{tmp_path}/\u2190.sock"}
    completed = subprocess.run(
        [*CLI, "config", "show"],
        env=harness.environment(str(tmp_path), **settings),
        capture_output=True,
        timeout=240,
    )
    assert (completed.returncode, completed.stderr) == (0, b"")
    assert f"{tmp_path}/?.sock".encode() in completed.stdout


@pytest.mark.system
def test_a_command_whose_streams_are_closed_ends_as_it_would(tmp_path: Path) -> None:
    """As one does that some daemon starts. A monitor ended so without a word."""
    completed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *CLI, "status", "--control", NOWHERE],
        env=harness.environment(str(tmp_path), GPUFERRY_TOKEN=TOKEN),
        timeout=240,
    )
    assert completed.returncode == 5


@pytest.mark.system
def test_codegen_whose_output_nobody_reads() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    root = Path(__file__).parents[2]
    command = [CLI[0], "-m", "codegen", "coverage"]
    try:
        completed = subprocess.run(command, cwd=root, stdout=writing, stderr=subprocess.PIPE, timeout=240)
    finally:
        os.close(writing)
    assert (completed.returncode, completed.stderr) == (-signal.SIGPIPE, b"")


def test_version(call: Call) -> None:
    found = json.loads(call("version", "--json").stdout)
    assert found["schema"] == "gpuferry.version/1"
    assert found["spec"] == spec_hash()
    assert call("version").stdout.startswith(f"gpuferry {found['gpuferry']}, ")
    assert call("--version").stdout == call("version").stdout
    assert "--version" in call("--help").stdout


@pytest.mark.parametrize("words", ["gpuferry mon", "gpuferry config "])
def test_bash_completes_verbs(tmp_path: Path, words: str) -> None:
    script = harness.gpuferry(str(tmp_path), "completion", "bash").stdout
    assert "complete " in script
    completed = harness.gpuferry(
        str(tmp_path),
        _GPUFERRY_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert completed.stdout.split() in (["monitor"], ["show", "path"])
