"""What `gpuferry doctor` finds, and what it says to do."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from gpuferry.guest import paths
from gpuferry.monitor.cli import doctor, quick
from gpuferry.monitor.cli.checks import machine, monitor, settings
from gpuferry.monitor.cli.checks.check import Check, python
from gpuferry.monitor.cli.errors import CliError, Exit
from gpuferry.monitor.functions.config import FunctionsConfig
from gpuferry.monitor.functions.daemon import Daemon
from gpuferry.monitor.service import authority
from gpuferry.monitor.service.runtime import RuntimeDirectory
from gpuferry.monitor.service.tls import read_certificates
from gpuferry.monitor.service.versions import package_version
from gpuferry.monitor.settings.errors import ConfigError

from tests.helpers.certificates import Certificates
from tests.helpers.running import real_gpu
from tests.helpers.tokens import token_of
from tests.monitor import harness

DRIVER = """
int cuInit(unsigned flags) { (void)flags; return INIT; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GPUFERRY_") and "SANITIZE" not in name]:
        if name not in ("GPUFERRY_GUEST_LIBRARY", "GPUFERRY_SIM_LIBRARY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("GPUFERRY_MONITOR_LISTEN", "none")


def the(name: str, found: Iterable[Check]) -> Check:
    """The one finding of this name."""
    (check,) = [check for check in found if check.name == name]
    assert check.result == "ok" or check.next_step, f"{check}: what to do?"
    return check


# -- settings


def test_a_file_with_an_unknown_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("pool = 2\npoool = 3\n")
    monkeypatch.setenv("GPUFERRY_CONFIG", str(tmp_path / "m.toml"))
    check = the("settings of the monitor", settings.settings_checks(False))
    assert check.result == "failed"
    assert "m.toml:2: unknown key poool: did you mean pool?" in check.detail


def test_the_file_of_one_program_is_no_mistake_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text('bodies = "1GiB"\nlisten = "0.0.0.0:7788"\n')
    monkeypatch.setenv("GPUFERRY_CONFIG", str(tmp_path / "f.toml"))
    found = list(settings.settings_checks(False))
    assert the("settings of the functions", found).result == "ok"
    assert not [check for check in found if check.name == "settings of the monitor"]
    assert "--listen 0.0.0.0:7788" in the("in the clear", found).detail


def test_the_function_servers_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUFERRY_CONTROL", "10.255.255.1:1")  # the monitor's, which it calls
    monkeypatch.setenv("GPUFERRY_FUNCTIONS_TOKEN", "open sesame, open sesame")
    assert "can be guessed" in the("GPUFERRY_FUNCTIONS_TOKEN", settings.settings_checks(False)).detail
    assert said("in the clear") == []
    folder = tmp_path / "config" / "gpuferry"
    folder.mkdir(parents=True)
    (folder / "functions.toml").write_text("qeue = 3\n")
    check = the("settings of the functions", settings.settings_checks(False))
    assert (check.result, "did you mean queue?" in check.detail) == ("failed", True)


def test_a_function_server_that_runs(tmp_path: Path) -> None:
    folder = settings.folder_of("functions")
    config = FunctionsConfig(
        listen="0.0.0.0:7788", runtime=folder, folder=tmp_path, token=token_of("functions").encode()
    )
    runtime = RuntimeDirectory(folder)
    Daemon(config)._publish(runtime, config.listen, False)
    found = list(settings.settings_checks(False))
    runtime.close()
    assert the("settings of the functions", found).detail == "those of the one that runs here"
    assert the("token of the functions that runs", found).result == "ok"
    assert "--listen 0.0.0.0:7788" in the("in the clear", found).detail


def test_where_settings_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_MONITOR_POOL", "3")
    check = the("settings of the monitor", settings.settings_checks(False))
    assert check.result == "ok"
    assert "environment variable GPUFERRY_MONITOR_POOL" in check.detail


@pytest.mark.parametrize(
    ("content", "mode", "result", "words"),
    [
        (token_of("the file"), 0o600, "ok", ""),
        (token_of("the file"), 0o644, "failed", "others can read it"),
        ("open sesame, open sesame", 0o600, "failed", "can be guessed"),
        ("\n", 0o600, "failed", "first line is empty"),
        (None, 0, "failed", "No such file"),
    ],
)
def test_the_tokens_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, mode: int, result: str, words: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    monkeypatch.setenv("GPUFERRY_MONITOR_REGISTRY", "none")
    monkeypatch.setenv("GPUFERRY_TOKEN_FILE", str(file))
    check = next(c for c in settings.settings_checks(False) if c.name == "token_file")
    assert check.result == result
    assert words in check.detail


def said(name: str) -> list[str]:
    """The details of all findings of this name that are not ok."""
    found = settings.settings_checks(False)
    return [check.detail for check in found if check.name == name and check.result != "ok"]


def test_secrets_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_TOKEN", token_of("the monitor"))
    assert not said("GPUFERRY_TOKEN")
    for nothing in ("", " \n"):  # which counts as not set
        monkeypatch.setenv("GPUFERRY_TOKEN", nothing)
        assert not said("GPUFERRY_TOKEN")
    monkeypatch.setenv("GPUFERRY_TOKEN", "open sesame, open sesame")
    monkeypatch.setenv("GPUFERRY_CLUSTER_KEY", "a" * 64)
    for name in ("GPUFERRY_TOKEN", "GPUFERRY_CLUSTER_KEY"):
        assert "can be guessed" in the(name, settings.settings_checks(False)).detail
    assert "sesame" not in "".join(said("GPUFERRY_TOKEN"))


def test_files_that_others_can_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "tls").mkdir(mode=0o700, parents=True)
    state.chmod(0o700)
    files = [state / "gpuferry.db", state / "cluster.key", state / "tls" / "gpu-a.key", tmp_path / "password"]
    files.append(tmp_path / "snapshots.key")
    for file in files:
        file.touch(0o600)
    monkeypatch.setenv("GPUFERRY_STATE_DIR", str(state))
    monkeypatch.setenv("GPUFERRY_REGISTRY_ETCD_USER", "gpus")
    monkeypatch.setenv("GPUFERRY_REGISTRY_ETCD_PASSWORD_FILE", str(files[-2]))
    monkeypatch.setenv("GPUFERRY_SNAPSHOT_KEY_FILE", str(files[-1]))
    names = ("state folder", "etcd_password_file", "snapshot_key_file")
    assert [detail for name in names for detail in said(name)] == []
    for file in (state, *files):
        file.chmod(0o750 if file.is_dir() else 0o640)
    found = "\n".join(detail for name in names for detail in said(name))
    assert all(f"{file}: others can read it" in found for file in (state, *files))
    away = str(tmp_path / ("long" * 100))  # as another user's folder, which does not keep root out
    monkeypatch.setenv("GPUFERRY_STATE_DIR", away)
    assert said("state folder") == [f"{away}: File name too long"]


def test_a_certificate_and_its_end(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates, tmp_path: Path
) -> None:
    for variable, value in certificates.variables("server").items():
        monkeypatch.setenv(variable, value)
    name = "certificate of the monitor"
    assert {check.result for check in settings.settings_checks(False) if check.name == name} == {"ok"}
    authority.make_authority(tmp_path, 1000)
    authority.issue(tmp_path, "server", ["gpu-a"], days=1)
    soon = authority.describe(read_certificates(tmp_path / "server.crt")[0])
    assert not soon.ends_soon  # it is new
    monkeypatch.setattr(authority, "_now", lambda: soon.ends - datetime.timedelta(hours=7))
    assert soon.ends_soon
    for variable, value in Certificates(tmp_path).variables("server").items():
        monkeypatch.setenv(variable, value)
    found = [check for check in settings.settings_checks(False) if check.name == name]
    assert [check.result for check in found] == ["note", "ok"]
    assert "--replace" in found[0].next_step
    (tmp_path / "server.key").chmod(0o644)
    assert "others can read the key" in the(name, settings.settings_checks(False)).detail


def test_ways_in_the_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert said("in the clear") == []
    for name, value in {
        "GPUFERRY_MONITOR_CONTROL": "10.255.255.1:1",
        "GPUFERRY_MONITOR_HTTP": "0.0.0.0:0",
        "GPUFERRY_REGISTRY": "127.0.0.1:1,registry.example:7701, tls://other.example:7701",
        "GPUFERRY_REGISTRY_STORE": "etcd:etcd.example:2379",
    }.items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    (run / "endpoint").write_text(
        "GPUFERRY_MONITOR=tls://10.0.0.1:7700\nGPUFERRY_TCP=10.0.0.1:7700\n"
        "GPUFERRY_CONTROL=unix:/x\nGPUFERRY_HTTP=[::]:1\n"
    )
    found = [detail.partition(" reaches ")[0] for detail in said("in the clear")]
    assert found == [
        "--control 10.255.255.1:1",
        "--http 0.0.0.0:0",
        "what is said to the registry at registry.example:7701 can be read on the way",
        "what is stored in etcd at etcd.example:2379 can be read and changed on the way",
        "10.0.0.1:7700 (tcp) has no TLS",
        "[::]:1 (http) has no TLS",
    ]
    monkeypatch.setenv("GPUFERRY_INSECURE", "true")
    accepted = [check for check in settings.settings_checks(False) if check.name == "in the clear"]
    assert {check.result for check in accepted} == {"note"}


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        monkeypatch.setenv("GPUFERRY_MONITOR_LISTEN", f"127.0.0.1:{port}")
        check = the("port", settings.settings_checks(False))
        assert check.result == "failed"
        assert f"process {os.getpid()}" in check.detail
        assert not [c for c in settings.settings_checks(True) if c.name == "port"]  # a monitor's own
        monkeypatch.setattr(settings, "_holder", lambda port: ": process 1 (gpuferry) has it")
        assert the("port", settings.settings_checks(False)).result == "note"  # a registry's
    assert the("port", settings.settings_checks(False)).result == "ok"


# -- folders


def test_the_runtime_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert the("runtime folder", machine.runtime_folder()).result == "ok"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    check = the("runtime folder", machine.runtime_folder())
    assert check.result == "failed"
    assert "others could read the token" in check.detail
    assert f"chmod 700 {folder}" in check.next_step
    folder.chmod(0o700)
    assert the("runtime folder", machine.runtime_folder()).result == "ok"
    folder.rmdir()
    folder.write_text("")
    assert "not a folder of yours" in the("runtime folder", machine.runtime_folder()).detail


def test_a_runtime_folder_with_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", "/tmp/" + "x" * 100)
    assert "too long" in the("runtime folder", machine.runtime_folder()).detail


def test_what_a_killed_monitor_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with harness.monitor("--orphan-grace", "0") as monitor:
        monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", monitor.runtime)
        assert machine.monitor_runs()
        assert [check.name for check in machine.runtime_folder()] == ["runtime folder"]
        monitor.process.kill()
        monitor.process.wait()
        assert not machine.monitor_runs()
        check = the("stale files", machine.runtime_folder())
        assert check.result == "note"
        for word in (str(monitor.process.pid), "session.sock", "control.sock", "endpoint"):
            assert word in check.detail


def test_the_cache_of_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GPUFERRY_SIM_CACHE", str(folder))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder.mkdir(mode=0o700)
    assert machine._cache().result == "ok"
    folder.chmod(0o777)
    check = machine._cache()
    assert check.result == "note"
    assert "chmod 700" in check.next_step or "mkdir" in check.next_step


# -- drivers


def driver(folder: Path, version: int, init: int = 0) -> None:
    """A driver in LD_LIBRARY_PATH that says so."""
    (folder / "driver.c").write_text(DRIVER)
    command = ["cc", "-shared", "-fPIC", f"-DVERSION={version}", f"-DINIT={init}"]
    command += ["-o", str(folder / "libcuda.so.1"), str(folder / "driver.c")]
    subprocess.run(command, check=True)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize(
    ("version", "init", "result", "words"),
    [
        (12040, 0, "failed", "CUDA 12.4: 12.8 is the oldest"),
        (12080, 0, "ok", "2 found; the driver supports CUDA 12.8"),
        (13050, 0, "ok", "CUDA 13.5"),
        (13050, 803, "note", "error 803"),
        (13050, 100, "note", "error 100"),
    ],
)
def test_the_gpus_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int, init: int, result: str, words: str
) -> None:
    driver(tmp_path, version, init)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    check = the("GPU", [machine.gpu()])
    assert (check.result, words in check.detail) == (result, True), check


def test_a_guest_library_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.guest_library().result == "ok"
    monkeypatch.setenv("GPUFERRY_GUEST_LIBRARY", paths.simulated_driver())  # any library without our spec
    check = the("guest library", [machine.guest_library()])
    assert check.result == "failed"
    assert "another spec" in check.detail


def test_the_compiler_runs_a_kernel() -> None:
    check = machine._compiler()
    assert check.result == "ok", check
    assert "ran a kernel" in check.detail


def test_a_python_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_SIM_PYTHON", "/no/python")
    check = the("compiler of the simulated device", [machine._compiler()])
    assert check.result == "failed"
    assert "gpuferry[sim]" in check.next_step


def test_a_simulated_device_that_cannot_be_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_SIM_CC", "99.9")
    check = the("simulated device", machine.simulated_device())
    assert "GPUFERRY_SIM_CC=99.9: expected a compute capability" in check.detail
    assert "unset it" in check.next_step
    # A monitor started API servers again and again.
    monkeypatch.setenv("GPUFERRY_DEVICE", "sim")
    offered = the("what a monitor would offer", [machine.offer()])
    assert (offered.result, "GPUFERRY_SIM_CC=99.9" in offered.detail) == ("failed", True)
    monkeypatch.delenv("GPUFERRY_SIM_CC")
    monkeypatch.setenv("GPUFERRY_SIM_MEMORY", "8")
    assert "'8': a size from 1MiB to 16TiB" in machine.offer().detail


@pytest.mark.skipif(real_gpu(), reason="on a machine without a GPU")
def test_what_would_be_offered_by_the_settings_in_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "gpuferry"
    folder.mkdir(parents=True)
    (folder / "monitor.toml").write_text('device = "gpu"\n')
    assert machine.offer().detail.startswith("no GPU: ")


def test_what_cannot_be_offered_has_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_SIM_DEVICES", "many")
    monkeypatch.setenv("GPUFERRY_DEVICE", "sim")
    assert "'many': a number from 1 to 64" in the("what a monitor would offer", [machine.offer()]).detail


# -- what cannot be looked at


@pytest.mark.parametrize(
    ("error", "words", "step"),
    [
        (CliError(Exit.FAILED, "it is damaged", "remove it"), "it is damaged", "remove it"),
        (ConfigError("it is damaged"), "it is damaged", "gpuferry config show"),
        (paths.LibraryMissing("it is not built"), "it is not built", "make build"),
        (ValueError("invalid literal"), "ValueError: invalid literal", "GPUFERRY_DEBUG=1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_cannot_be_looked_at_keeps_nobody_from_the_rest(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str, step: str
) -> None:
    def fails() -> Iterable[Check]:
        yield Check("before", "ok", "")
        raise error

    looks = [("first", fails), ("second", lambda: [Check("second", "ok", "")])]
    monkeypatch.setattr(doctor, "_looks", lambda *_: iter(looks))
    before, failed, second = doctor.checks(None, None)
    assert (before.name, second.name) == ("before", "second")
    assert (failed.name, failed.result) == ("first", "failed")
    assert words in failed.detail
    assert step in failed.next_step


def of_look(name: str) -> list[Check]:
    """What one of the doctor's looks finds."""
    (look,) = [look for known, look in doctor._looks(None, None) if known == name]
    return list(doctor._found(name, look))


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where nobody has an account."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    (found,) = of_look("settings")
    assert (found.result, found.next_step) == ("failed", "set GPUFERRY_STATE_DIR")


def test_a_damaged_endpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    (folder / "endpoint").write_bytes(b"GPUFERRY_MONITOR=\xff\n")
    for look in ("runtime folder", "monitor"):
        found = of_look(look)[-1]
        assert (found.result, "is damaged: it is no text" in found.detail) == ("failed", True)
        assert "it writes `endpoint` anew" in found.next_step


def test_no_simulated_device_for_the_look_at_jails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFERRY_DEVICE", "sim")
    monkeypatch.setenv("GPUFERRY_SIM_LIBRARY", "/no/such/libcuda.so.1")
    (found,) = of_look("jail")
    assert (found.result, "/no/such/libcuda.so.1" in found.detail) == ("failed", True)


def test_a_certificate_of_ones_own_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CERT": "/no/such.crt", "KEY": "/no/such.key", "CA": "/no/such/ca.crt"}.items():
        monkeypatch.setenv(f"GPUFERRY_TLS_{name}", value)
    monkeypatch.setenv("GPUFERRY_CONTROL", "tls://gpu-server:7701")
    monkeypatch.setenv("GPUFERRY_TOKEN", token_of("the monitor"))
    found = the("control", monitor._service(None, None))
    assert (found.result, "/no/such.crt" in found.detail) == ("failed", True)


def test_a_monitor_whose_control_port_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(monitor._service(None, None)) == []  # of another machine: nobody knows where it is
    monkeypatch.setenv("GPUFERRY_CONTROL", "unix:/no/such/control.sock")
    monkeypatch.setenv("GPUFERRY_TOKEN", token_of("the monitor"))
    found = the("control", monitor._service(None, None))
    assert (found.result, "/no/such/control.sock" in found.detail) == ("failed", True)


def test_a_child_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuferry.monitor.cli.checks.check.SECONDS", 0.1)
    assert python("import time; time.sleep(60)", dict(os.environ)) == (1, "it did not end within 0.1 s")


def test_what_a_child_says_need_not_be_text() -> None:
    code = r"import sys; sys.stderr.buffer.write(b'gpuferry[1]: \xff: no such file\n'); sys.exit(3)"
    assert python(code, dict(os.environ)) == (3, "gpuferry[1]: \ufffd: no such file")


_NAMED = """
import socket, sys
with open("/proc/self/comm", "wb") as name:
    name.write(b"server\\xff")
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_who_has_a_port_need_not_have_a_name_that_is_text() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert "(server\ufffd) has it" in settings._holder(int(holder.stdout.readline()))
        holder.communicate()


def test_an_installation_that_fails_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(quick, "import_module", fails)
    assert quick.not_for_servers() == "ImportError: "


def test_what_a_server_says_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = Check("token and spec", "failed", "\x1b[2Jwrong token", "see \x07 the log")
    monkeypatch.setattr(doctor, "checks", lambda *_: [check])
    assert doctor.main([]) == Exit.FAILED
    assert not {"\x1b", "\x07"} & set(capsys.readouterr().out)


# -- the whole


@pytest.mark.system
def test_a_monitors_failed_device() -> None:
    options = ("--pool", "1", "--http", "127.0.0.1:0")
    with harness.monitor(*options, GPUFERRY_SIM_DEVICES="2", GPUFERRY_FAKE_1="fail") as monitor:
        monitor.wait_for(lambda status: status.devices[1].problem, "the reason")
        completed = monitor.run("doctor", "--json")
        published = Path(monitor.runtime, "endpoint").read_text()
        page = re.search("GPUFERRY_HTTP=(.*)", published)
        assert page
        with urllib.request.urlopen(f"http://{page[1]}/readyz", timeout=120) as answer:
            text = answer.read().decode()
        assert "no driver to be found" in monitor.run("status").stdout
    report = json.loads(completed.stdout)
    assert not report["ok"]
    found = {check["name"]: check for check in report["checks"]}
    assert found["GPU 1 of the monitor"]["result"] == "failed"
    assert found["GPU 1 of the monitor"]["detail"] == "no driver to be found"
    assert "GPU 0 of the monitor" not in found
    assert text == "ready\ngpu 1: no driver to be found\n"


@pytest.mark.system
def test_with_a_monitor() -> None:
    with harness.monitor("--pool", "2") as monitor:
        monitor.wait_idle(2)
        completed = monitor.run("doctor", "--json")
    report = json.loads(completed.stdout)
    found = {check["name"]: check for check in report["checks"]}
    assert found["version"]["detail"] == f"gpuferry {package_version()} on both sides"
    assert found["API servers"]["detail"] == "2 of 2 idle"
    assert found["token and spec"]["result"] == "ok"
    assert "port" not in found
    assert all(check["next_step"] for check in report["checks"] if check["result"] != "ok")
