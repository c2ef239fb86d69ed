"""What `gpuferry doctor` says of an installation that runs, with every weakness at once and with none."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.ports import lasting_ports
from tests.helpers.tokens import token_of
from tests.monitor import harness
from tests.monitor.harness import Monitor
from tests.registry.etcd import Member
from tests.registry.running import registry

# Devices whose kernels reach all memory of the process: attribute 88, pageableMemoryAccess.
FAR = """
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { (void)device; *value = which == 88; return 0; }
"""


def beyond_loopback() -> str:
    """An address of this machine that others might reach; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            pytest.skip("this machine has no address but loopback")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that speaks in the clear, beyond loopback."""
    if not shutil.which("etcd"):
        pytest.skip("etcd is not installed: apt-get install etcd-server")
    host, folder = beyond_loopback(), tmp_path_factory.mktemp("etcd")
    with lasting_ports(2) as (client, peer):
        address = f"{host}:{client}"
        urls = ("--listen-client-urls", f"http://{address}", "--advertise-client-urls", f"http://{address}")
        member = Member(folder, "m0", client, peer, f"m0=http://127.0.0.1:{peer}", urls)
        try:
            yield address
        finally:
            member.kill()


def doctor(monitor: Monitor, **environment: str) -> dict[str, list[dict[str, Any]]]:
    """Findings by name, but for those that are all right."""
    done = monitor.run("doctor", "--json", **environment)
    found: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        if check["result"] != "ok":
            assert check["next_step"], check
            found.setdefault(check["name"], []).append(check)
    return found


def far_driver(folder: Path) -> Path:
    source, library = folder / "far.c", folder / "libcuda.so.1"
    source.write_text(FAR)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)], check=True
    )
    return library


@pytest.mark.timeout(600)
def test_every_weakness_of_what_runs_is_told(etcd: str, tmp_path: Path) -> None:
    token, state = tmp_path / "token", tmp_path / "state"
    token.write_text(token_of("the monitor"))
    token.chmod(0o600)
    with contextlib.ExitStack() as stack:
        key = tmp_path / "cluster.key"
        key.write_text(token_of("the cluster"))
        key.chmod(0o600)
        shared = ("--cluster-key-file", str(key), "--insecure")
        behind = stack.enter_context(registry("--store", f"etcd:{etcd}", *shared))
        options: tuple[str, ...] = (
            "--listen",
            "0.0.0.0:0",
            "--http",
            "0.0.0.0:0",
            "--jail",
            "off",
            "--check-kernels",
            "off",
        )
        options += ("--token-file", str(token), "--state", str(state), "--registry", behind.control, *shared)
        running = stack.enter_context(harness.monitor(*options))
        # The registry's runtime folder is in its monitor's, where one user runs both.
        Path(running.runtime, "registry").symlink_to(Path(behind.runtime, "registry"))
        token.write_text("open sesame, open sesame")  # since its start
        for path in (token, state, key):
            path.chmod(0o755)
        found = doctor(running, GPUFERRY_SIM_LIBRARY=str(far_driver(tmp_path)))

    def details(name: str) -> str:
        return "\n".join(check["detail"] for check in found[name])

    assert "--jail off: programs can do what the monitor can" in details("jail")
    assert "--check-kernels off" in details("reach of kernels")
    assert "pageableMemoryAccess" in details("reach of the devices")
    assert "can be guessed" in details("token_file")
    assert f"{key}: others can read it" in details("cluster_key_file")
    assert f"{state}: others can read it" in details("state folder")
    clear = details("in the clear")
    assert "--listen 0.0.0.0:0 reaches other machines" in clear
    assert "(tcp) has no TLS" in clear
    assert "(http) has no TLS" in clear
    assert f"what is stored in etcd at {etcd} can be read and changed on the way" in clear
    assert "whoever reaches etcd can read and change" in details("access to etcd")


@pytest.mark.system
def test_nothing_is_said_of_what_runs_well() -> None:
    with harness.monitor("--pool", "1", server=None) as running:
        running.wait_idle(1)
        found = doctor(running)
    for name in ("jail", "reach of kernels", "token_file", "state folder", "in the clear", "access to etcd"):
        assert name not in found


@pytest.mark.system
def test_what_a_killed_monitor_was_told_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    with harness.monitor("--orphan-grace", "0", "--jail", "off", "--check-kernels", "off") as running:
        assert "reach of kernels" in doctor(running)
        running.process.kill()
        running.process.wait()
        assert Path(running.runtime, "settings.json").exists()
        assert "reach of kernels" not in doctor(running)
