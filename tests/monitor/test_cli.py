"""The `gpuferry` command: exit statuses, what goes to stdout and what to stderr, and who may read what."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuferry.guest.endpoint import Endpoint
from gpuferry.guest.paths import front, guest_library
from gpuferry.monitor.cli import reach

from tests.helpers.tokens import token_of
from tests.helpers.warm import CLI
from tests.monitor import harness
from tests.monitor.fake_guest import FakeGuest

SHOW = [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
NOWHERE = "127.0.0.1:9"
TOKEN = token_of("the monitor")


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "1", GPUFERRY_TOKEN=None) as running:
        running.wait_idle(1)
        yield running


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A runtime folder in which no monitor published anything."""
    return str(tmp_path)


def shown(completed: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert completed.returncode == 0, completed.stderr
    environment = json.loads(completed.stdout)
    assert isinstance(environment, dict)
    return environment


# -- run


def test_run_finds_the_monitor_of_this_machine(monitor: harness.Monitor) -> None:
    environment = shown(monitor.run("run", "--", *SHOW))
    assert environment["GPUFERRY_MONITOR"] == monitor.address
    assert environment["GPUFERRY_TOKEN"] == monitor.token
    assert environment["LD_PRELOAD"].split(":")[0] == front(guest_library())
    assert environment["LD_LIBRARY_PATH"].split(":")[0] == os.path.dirname(guest_library())
    assert "LC_CTYPE" not in environment or "LC_CTYPE" in os.environ


def test_run_options(monitor: harness.Monitor, tmp_path: Path) -> None:
    options = ["--memory", "1.5GiB", "--function", "resnet", "--stats", str(tmp_path / "s.json")]
    environment = shown(monitor.run("run", *options, *SHOW))
    assert environment["GPUFERRY_MEMORY"] == str(3 << 29)
    assert environment["GPUFERRY_FUNCTION"] == "resnet"
    assert environment["GPUFERRY_STATS"] == str(tmp_path / "s.json")


LIMITS = {"--max-wait": "2.5", "--wall-limit": "60", "--idle-limit": "9", "--on-loss": "reconnect"}
DEMANDS = [*(word for pair in LIMITS.items() for word in pair), "--label", "gpu=0", "--label", "zone=a"]


def hold_the_demands(environment: dict[str, str]) -> None:
    for flag, value in LIMITS.items():
        assert environment["GPUFERRY_" + flag[2:].replace("-", "_").upper()] == value
    assert environment["GPUFERRY_LABELS"] == "gpu=0,zone=a"


def test_run_hands_limits_to_the_guest(monitor: harness.Monitor) -> None:
    hold_the_demands(shown(monitor.run("run", *DEMANDS, "--", *SHOW, GPUFERRY_MAX_WAIT="1")))


def test_a_device_is_chosen_for_a_private_monitor_only(monitor: harness.Monitor) -> None:
    completed = monitor.run("run", "--device", "gpu", "--", *SHOW)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "--device goes with --local" in completed.stderr


def test_run_takes_the_flag_before_the_environment(monitor: harness.Monitor) -> None:
    environment = shown(monitor.run("run", "--monitor", monitor.tcp, "--", *SHOW, GPUFERRY_MONITOR=NOWHERE))
    assert environment["GPUFERRY_MONITOR"] == monitor.tcp
    assert environment["GPUFERRY_TOKEN"] == monitor.token


def test_run_sends_the_local_token_to_no_other_address(monitor: harness.Monitor) -> None:
    completed = monitor.run("run", "--monitor", NOWHERE, "--", *SHOW)
    assert completed.returncode == 6
    assert not completed.stdout
    assert monitor.token not in completed.stderr


def test_run_keeps_what_was_preloaded(monitor: harness.Monitor) -> None:
    preloaded = "/other/libcuda.so.1 libexample_none.so"
    environment = shown(monitor.run("run", "--", *SHOW, LD_PRELOAD=preloaded))
    assert environment["LD_PRELOAD"].startswith(f"libexample_none.so:{front(guest_library())}")


def test_exit_status_and_output_are_the_programs_own(monitor: harness.Monitor) -> None:
    completed = monitor.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 41")
    assert (completed.returncode, completed.stdout, completed.stderr) == (41, "out\n", "err\n")


def test_a_signal_that_ends_the_program_is_seen(monitor: harness.Monitor) -> None:
    assert monitor.run("run", "--", "sh", "-c", "kill -USR1 $$").returncode == -signal.SIGUSR1


def test_sigpipe_is_as_the_program_expects(monitor: harness.Monitor) -> None:
    program = "import signal; print(signal.getsignal(signal.SIGPIPE))"
    script = f"kill -PIPE $$; exec {sys.executable} -c '{program}'"
    assert monitor.run("run", "--", "sh", "-c", script).returncode == -signal.SIGPIPE


def test_options_after_the_program_are_the_programs(monitor: harness.Monitor) -> None:
    assert monitor.run("run", "echo", "--monitor", "-x", "--", "y").stdout == "--monitor -x -- y\n"


def test_program_not_found(monitor: harness.Monitor) -> None:
    completed = monitor.run("run", "--", "no-such-program")
    assert completed.returncode == 127
    assert completed.stderr == "gpuferry: no-such-program: program not found\n"


def test_program_not_executable(monitor: harness.Monitor, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    completed = monitor.run("run", "--", str(tmp_path / "text"))
    assert completed.returncode == 126
    assert "Permission denied" in completed.stderr
    assert "  not an executable file: name the compiled program" in completed.stderr


def test_a_program_of_this_folder_is_named_with_its_folder(
    monitor: harness.Monitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    completed = monitor.run("run", "--", "mine")
    assert completed.returncode == 127
    assert completed.stderr == "gpuferry: mine: program not found\n  the program in this folder is ./mine\n"
    assert monitor.run("run", "--", "./mine").returncode == 5


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["--memory", "lots", "--", "true"],
        ["--max-wait", "soon", "--", "true"],
        ["--on-loss", "weep", "--", "true"],
        ["--nonsense", "true"],
    ],
)
def test_run_used_wrongly(monitor: harness.Monitor, arguments: list[str]) -> None:
    completed = monitor.run("run", *arguments)
    assert completed.returncode == 2
    assert "usage: gpuferry run" in completed.stderr


def test_run_without_any_monitor(nowhere: str) -> None:
    completed = harness.gpuferry(nowhere, "run", "--", *SHOW)
    assert completed.returncode == 5
    assert not completed.stdout
    assert "gpuferry monitor" in completed.stderr


def test_run_to_a_monitor_that_is_not_there_warns_and_goes_on(nowhere: str) -> None:
    completed = harness.gpuferry(
        nowhere, "run", "--", "echo", "hi", GPUFERRY_MONITOR=NOWHERE, GPUFERRY_TOKEN=TOKEN
    )
    assert (completed.returncode, completed.stdout) == (0, "hi\n")
    for part in (NOWHERE, "environment variable GPUFERRY_MONITOR", "Connection refused", "gpuferry doctor"):
        assert part in completed.stderr
    assert TOKEN not in completed.stderr


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_monitor_that_is_there_has_its_time_to_answer(family: socket.AddressFamily, short: str) -> None:
    """One that stood still for 3 s was warned of as one that is not there."""
    path = os.path.join(short, "s")
    unix = family == socket.AF_UNIX
    with socket.create_server(path if unix else ("127.0.0.1", 0), family=family) as busy:
        address = f"unix:{path}" if unix else f"127.0.0.1:{busy.getsockname()[1]}"
        with reach.connect(Endpoint(address, "command line", TOKEN)) as connection:
            assert connection.gettimeout() == reach.ANSWER_SECONDS == 10 * reach.SECONDS
    Path(path).unlink(missing_ok=True)


def test_run_with_an_address_that_is_none(nowhere: str) -> None:
    completed = harness.gpuferry(
        nowhere, "run", "--monitor", "gpu-server", "--", "true", GPUFERRY_TOKEN=TOKEN
    )
    assert completed.returncode == 2
    assert "HOST:PORT" in completed.stderr


# -- run --local


def local(runtime: str, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    return harness.gpuferry(
        runtime,
        "run",
        "--local",
        *arguments,
        GPUFERRY_APISERVER=harness.FAKE_SERVER,
        XDG_RUNTIME_DIR=runtime,
        **changes,
    )


@pytest.fixture
def short() -> Iterator[str]:
    """A folder whose name leaves room for Unix sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as folder:
        yield folder
        assert not list(Path(folder).iterdir()), "something was left behind"


@pytest.mark.system
def test_local_has_a_monitor_of_its_own(short: str) -> None:
    environment = shown(local(short, *DEMANDS, "--", *SHOW, GPUFERRY_TOKEN="unused" * 10))
    hold_the_demands(environment)
    assert environment["GPUFERRY_MONITOR"].startswith(f"unix:{short}/gpuferry-local-")
    assert environment["GPUFERRY_TOKEN"] != "unused" * 10
    assert not Path(environment["GPUFERRY_MONITOR"].removeprefix("unix:")).exists()


def test_local_monitor_serves_the_program(short: str) -> None:
    program = (
        "import os; from tests.monitor.fake_guest import FakeGuest;"
        "g = FakeGuest(os.environ['GPUFERRY_MONITOR'], os.environ['GPUFERRY_TOKEN']);"
        "print(g.proven, g.echo(b'hi'))"
    )
    root = str(harness.HERE.parents[1])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    completed = local(short, "--", sys.executable, "-c", program, PYTHONPATH=paths)
    assert completed.stdout == "True b'hi'\n", completed.stderr


@pytest.mark.system
def test_local_output_is_the_programs_own(short: str) -> None:
    completed = local(short, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (completed.returncode, completed.stdout, completed.stderr) == (7, "out\n", "err\n")


@pytest.mark.system
def test_local_program_not_found(short: str) -> None:
    assert local(short, "--", "no-such-program").returncode == 127


@pytest.mark.system
def test_local_dies_of_the_programs_signal(short: str) -> None:
    assert local(short, "--", "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    assert local(short, "--", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


@pytest.mark.system
def test_local_says_why_it_does_not_start(short: str) -> None:
    completed = local(short, "--", "true", GPUFERRY_FAKE="fail")
    assert completed.returncode == 1
    assert "no driver to be found" in completed.stderr


def started_locally(short: str, script: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*CLI, "run", "--local", "--", "sh", "-c", script],
        env=harness.environment(short, GPUFERRY_APISERVER=harness.FAKE_SERVER, XDG_RUNTIME_DIR=short),
        stdout=subprocess.PIPE,
        text=True,
    )
    with harness.killed_on_failure(process):
        assert process.stdout
        # The launcher became the program: whatever is sent to it or to its group, the program has once.
        assert process.stdout.readline() == f"{process.pid}\n"
    return process


@pytest.mark.system
def test_local_signals_reach_the_program_once(short: str) -> None:
    script = "trap 'echo caught; exit 3' TERM; echo $$; while :; do sleep 0.05; done"
    with started_locally(short, script) as process, harness.killed_on_failure(process):
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=harness.DEADLINE)[0] == "caught\n"
        assert process.returncode == 3


@pytest.mark.system
def test_a_killed_local_run_leaves_no_monitor(short: str) -> None:
    with started_locally(short, "echo $$; exec sleep 100") as process:
        process.kill()
    harness.wait_until(lambda: not list(Path(short).iterdir()), "removal of its folder")
    harness.wait_until(lambda: not named_by(short), "end of the private monitor")


def named_by(folder: str) -> list[Path]:
    """Processes that were started with this folder's name."""
    paths = Path("/proc").glob("[0-9]*/cmdline")
    return [path for path in paths if folder.encode() in content(path)]


def content(path: Path) -> bytes:
    """What a file says; nothing, if it has vanished."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


# -- sim, env


def test_sim(nowhere: str) -> None:
    environment = shown(harness.gpuferry(nowhere, "sim", "--devices", "3", "--vary", "7", "--", *SHOW))
    assert environment["LD_PRELOAD"].split(":")[0].endswith("/sim/libgpuferry.so")
    assert (environment["GPUFERRY_SIM_DEVICES"], environment["GPUFERRY_SIM_VARIANCE"]) == ("3", "7")
    assert environment["GPUFERRY_SIM_PYTHON"]
    assert "GPUFERRY_MONITOR" not in environment


def test_sim_used_wrongly(nowhere: str) -> None:
    assert harness.gpuferry(nowhere, "sim", "--devices", "0", "--", "true").returncode == 2
    assert harness.gpuferry(nowhere, "sim").returncode == 2


def test_env_preload_needs_no_monitor(nowhere: str) -> None:
    completed = harness.gpuferry(nowhere, "env", "--preload")
    assert (completed.returncode, completed.stdout) == (0, front(guest_library()) + "\n")


def test_env_is_what_run_sets(monitor: harness.Monitor) -> None:
    as_json = json.loads(monitor.run("env", "--json").stdout)
    script = monitor.run("env").stdout + " ".join(f"'{word}'" for word in SHOW)
    evaluated = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert as_json.items() <= json.loads(evaluated.stdout).items()
    assert as_json["GPUFERRY_TOKEN"] == monitor.token


def test_env_takes_what_run_takes(monitor: harness.Monitor) -> None:
    environment = shown(monitor.run("env", "--memory", "1.5GiB", "--function", "f", *DEMANDS, "--json"))
    hold_the_demands(environment)
    assert (environment["GPUFERRY_MEMORY"], environment["GPUFERRY_FUNCTION"]) == (str(3 << 29), "f")


# -- status


def test_status_json(monitor: harness.Monitor) -> None:
    with FakeGuest(monitor.address, monitor.token, function=b"f", program=b"p"):
        monitor.wait_for(lambda s: s.sessions and s.sessions[0].calls_async, "its API server's figures")
        status = json.loads(monitor.run("status", "--json").stdout)
    assert status["schema"] == "gpuferry.status/1"
    assert set(status) == {"schema", "monitor", "devices", "servers", "sessions", "queue", "migrations"}
    assert status["monitor"]["pid"] == monitor.process.pid
    assert status["devices"][0]["memory_total"] == 1 << 30
    assert status["devices"][0]["uuid"] == "00" * 16
    (session,) = status["sessions"]
    assert (session["function"], session["program"], session["calls_async"]) == ("f", "p", 7)
    (server,) = status["servers"]
    assert (server["state"], server["session"]) == ("busy", session["id"])
    assert status["queue"] == []
    assert monitor.token not in json.dumps(status)


def test_status_for_eyes(monitor: harness.Monitor) -> None:
    monitor.wait_idle(1)
    completed = monitor.run("status")
    assert completed.returncode == 0
    assert "Fake 0" in completed.stdout
    assert "no sessions" in completed.stdout
    assert "\x1b" not in completed.stdout


def test_status_watch(monitor: harness.Monitor) -> None:
    process = subprocess.Popen(
        [*CLI, "status", "--watch", "--json", "--interval", "0.1"],
        env=harness.environment(monitor.runtime),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, harness.killed_on_failure(process):
        assert process.stdout
        for _ in range(3):
            assert json.loads(process.stdout.readline())["schema"] == "gpuferry.status/1"
        process.send_signal(signal.SIGINT)
        assert process.wait(harness.DEADLINE) == 130


def test_status_with_the_wrong_token(monitor: harness.Monitor) -> None:
    completed = monitor.run("status", GPUFERRY_TOKEN=TOKEN)
    assert completed.returncode == 6
    assert "token" in completed.stderr


def test_status_of_no_monitor(nowhere: str) -> None:
    assert harness.gpuferry(nowhere, "status").returncode == 5
    completed = harness.gpuferry(nowhere, "status", "--control", NOWHERE, GPUFERRY_TOKEN=TOKEN)
    assert completed.returncode == 5
    assert NOWHERE in completed.stderr
    assert "command line" in completed.stderr


def test_status_from_the_port_of_guests(monitor: harness.Monitor) -> None:
    completed = monitor.run("status", "--control", monitor.tcp)
    assert completed.returncode == 5
    assert "what listens there speaks no gRPC" in completed.stderr


def test_health_and_reflection_need_no_token(monitor: harness.Monitor) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    health = health_pb2_grpc.HealthStub(monitor.channel)
    answer = health.Check(
        health_pb2.HealthCheckRequest(service="gpuferry.control.v1.Monitor"), timeout=harness.DEADLINE
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(monitor.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = reflection.ServerReflectionInfo(iter([request]), timeout=harness.DEADLINE)
    assert "gpuferry.control.v1.Monitor" in {service.name for service in reply.list_services_response.service}


# -- monitor


def test_what_is_published_is_private(monitor: harness.Monitor) -> None:
    assert stat.S_IMODE(os.stat(monitor.runtime).st_mode) == 0o700
    for name in ("token", "endpoint", "session.sock", "control.sock"):
        assert stat.S_IMODE(os.stat(os.path.join(monitor.runtime, name)).st_mode) == 0o600, name
    assert len(monitor.token) == 64


def test_an_open_runtime_folder_is_refused(short: str) -> None:
    folder = Path(short, "open")
    folder.mkdir()
    folder.chmod(0o755)
    completed = harness.gpuferry(str(folder), "monitor", GPUFERRY_APISERVER=harness.FAKE_SERVER)
    assert completed.returncode == 1
    assert "0700" in completed.stderr
    folder.rmdir()


def test_a_second_monitor_is_refused(monitor: harness.Monitor) -> None:
    completed = monitor.run("monitor", "--listen", "127.0.0.1:0", GPUFERRY_APISERVER=harness.FAKE_SERVER)
    assert completed.returncode == 1
    assert "GPUFERRY_RUNTIME_DIR" in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--listen", "0.0.0.0:0"], 1, "in the clear"),
        (["--http", "0.0.0.0:0"], 1, "in the clear"),
        (["--control", "0.0.0.0:0"], 1, "in the clear"),
        (["--listen", "0.0.0.0:0", "--insecure"], 1, "no token was given"),
        (["--listen", "[::]:0", "--insecure"], 1, "no token was given"),
        (["--control", "0.0.0.0:0", "--insecure"], 1, "no token was given"),
        (["--tls-cert", "server.crt"], 1, "--tls-key and --tls-ca: not given"),
        (["--listen", "nonsense"], 2, "HOST:PORT"),
        (["--http", "nonsense"], 2, "--http: 'nonsense' is neither"),
        (["--listen", "none", "--socket", "none"], 2, "no way in"),
        (["--device", "quantum"], 2, "auto, gpu, sim"),
        (["--device", "gpu"], 1, "no GPU"),
        (["--memory", "much"], 2, "no size"),
        (["--token-file", "/no/such/file"], 1, "/no/such/file"),
        (["--pool", "0"], 2, "--pool"),
        (["--socket", "/tmp/" + "x" * 200], 2, "107"),
    ],
)
def test_settings_that_cannot_work(short: str, arguments: list[str], status: int, words: str) -> None:
    runtime = str(Path(short, "run"))
    completed = harness.gpuferry(runtime, "monitor", *arguments, GPUFERRY_APISERVER=harness.FAKE_SERVER)
    assert completed.returncode == status, completed.stderr
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    if Path(runtime).exists():
        for left in Path(runtime).iterdir():
            left.unlink()
        Path(runtime).rmdir()


def test_a_given_token_allows_other_addresses(short: str, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    arguments = ["--pool", "1", "--listen", "0.0.0.0:0", "--insecure", "--token-file", str(token_file)]
    with harness.monitor(*arguments) as monitor:
        assert monitor.token == TOKEN
        port = monitor.tcp.rpartition(":")[2]
        with FakeGuest(f"127.0.0.1:{port}", TOKEN) as guest:
            assert guest.proven


def test_a_weak_token_is_refused(short: str) -> None:
    completed = harness.gpuferry(short, "monitor", GPUFERRY_TOKEN="abc")
    assert completed.returncode == 1
    assert "GPUFERRY_TOKEN can be guessed" in completed.stderr
    assert "gpuferry token new" in completed.stderr
    assert "abc" not in completed.stderr


def test_a_port_in_use(monitor: harness.Monitor, short: str) -> None:
    runtime = Path(short, "run")
    completed = harness.gpuferry(str(runtime), "monitor", "--listen", monitor.tcp)
    assert completed.returncode == 1
    assert monitor.tcp in completed.stderr
    assert "--listen" in completed.stderr
    assert not (runtime / "session.sock").exists()
    (runtime / "lock").unlink()
    runtime.rmdir()


# -- the rest


def test_doctor(monitor: harness.Monitor) -> None:
    completed = monitor.run("doctor", "--json")
    report = json.loads(completed.stdout)
    results = {check["name"]: check["result"] for check in report["checks"]}
    assert report["schema"] == "gpuferry.doctor/1"
    assert completed.returncode == (0 if report["ok"] else 1)
    assert results["monitor"] == "ok"
    assert results["token and spec"] == "ok"
    assert results["a CUDA program"] == "failed"  # the API server is a fake


def test_doctor_with_the_wrong_token(monitor: harness.Monitor) -> None:
    completed = monitor.run("doctor", "--monitor", monitor.tcp, GPUFERRY_TOKEN=TOKEN)
    assert completed.returncode == 1
    assert "wrong token" in completed.stdout
    assert "-> set GPUFERRY_TOKEN" in completed.stdout


def test_version_and_help(nowhere: str) -> None:
    assert harness.gpuferry(nowhere, "version").stdout.startswith("gpuferry ")
    text = harness.gpuferry(nowhere, "--help").stdout
    for verb in ("run", "sim", "env", "monitor", "status", "doctor", "version", "completion"):
        assert verb in text
    assert harness.gpuferry(nowhere, "no-such-verb").returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(nowhere: str, shell: str) -> None:
    completed = harness.gpuferry(nowhere, "completion", shell)
    assert completed.returncode == 0
    assert "gpuferry" in completed.stdout


def loaded(monitor: harness.Monitor, *arguments: str) -> set[str]:
    """The modules that a verb has imported when it is done, or becomes the program that it starts."""
    code = (
        "import os, sys; os.execvpe = lambda *_: sys.exit(0); sys.argv = ['gpuferry', *sys.argv[1:]];"
        "import atexit; atexit.register(lambda: print('modules:', *sys.modules));"
        "from gpuferry.monitor.cli.main import main; main()"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=harness.environment(monitor.runtime),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return set(completed.stdout.rpartition("modules:")[2].split())


def test_starting_a_program_imports_little(monitor: harness.Monitor) -> None:
    """Every import delays the program; these would cost more than all the rest."""
    found = loaded(monitor, "run", "--", "true")
    assert not found & {"typer", "rich", "grpc", "google.protobuf", "asyncio", "structlog"}


def test_a_look_imports_what_it_needs(monitor: harness.Monitor) -> None:
    """A monitor of this machine is asked in the clear, and what daemons log and keep is theirs."""
    found = loaded(monitor, "status")
    assert "grpc" in found
    assert not found & {
        "structlog",
        "cryptography",
        "gpuferry.specs._generated.etcd_pb2",
        "aiohttp",
        "pydantic",
    }
