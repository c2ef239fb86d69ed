"""Who may ask what."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from gpuferry.monitor.cli.errors import CliError
from gpuferry.monitor.cli.functions_client import Client
from gpuferry.monitor.functions.config import FunctionsOptions
from gpuferry.monitor.functions.deployment import Deployment
from gpuferry.monitor.functions.key import page_key
from gpuferry.monitor.functions.surroundings import environment_of

from tests.helpers.running import server_environment
from tests.helpers.warm import CLI, Popen

from .serving import Server, serving

PATHS = (
    "system/functions",
    "system/functions/mine",
    "system/functions/mine/logs",
    "system/status",
    "metrics",
)


@pytest.fixture(scope="module", autouse=True)
def mine(server: Server) -> None:
    server.deploy("mine", environment={"PASSWORD": "hush"})


@pytest.mark.parametrize("path", PATHS)
def test_commands_need_the_token(server: Server, path: str) -> None:
    assert server.ask("GET", f"/{path}").status == 401
    assert server.ask("GET", f"/{path}", Authorization="Bearer wrong").status == 401
    assert server.ask("GET", f"/{path}", Authorization=f"Bearer {server.token}").status == 200


def test_to_deploy_and_remove_needs_the_token(server: Server) -> None:
    for method in ("PUT", "DELETE"):
        for key in ("", page_key(server.token.encode())):
            got = server.ask(method, "/system/functions/mine", b"{}", Authorization=f"Bearer {key}")
            assert got.status == 401
    assert server.show("mine")["revision"] == 1


def test_the_pages_key_can_only_look(server: Server) -> None:
    key = {"Authorization": f"Bearer {page_key(server.token.encode())}"}
    assert server.ask("GET", "/system/status", **key).status == 200
    assert server.ask("GET", "/metrics", **key).status == 200
    assert server.ask("GET", "/system/functions/mine/logs", **key).status == 401


def test_what_is_shown_holds_no_value_of_a_variable(server: Server) -> None:
    shown = server.system("GET", "functions/mine").body
    assert b"PASSWORD" in shown
    assert b"hush" not in shown


def test_another_sites_page_neither_invokes_nor_reads(server: Server) -> None:
    assert server.ask("POST", "/function/mine", b"", Host="evil.example:80").status == 403
    assert server.ask("POST", "/function/mine", b"", Sec_Fetch_Site="cross-site").status == 403
    assert server.ask("POST", "/function/mine", b"", Sec_Fetch_Site="same-origin").status == 200
    for older, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:80", 200)):
        asked = server.ask("POST", "/function/mine", b"", Host="127.0.0.1:80", Origin=older)
        assert asked.status == status, older


def test_the_page_and_probes_need_nothing_and_hold_nothing(server: Server) -> None:
    for path in (
        "/",
        "/static/functions.js",
        "/static/functions.css",
        "/static/page.css",
        "/static/units.js",
        "/healthz",
        "/readyz",
    ):
        got = server.ask("GET", path)
        assert got.status == 200
        assert b"mine" not in got.body.replace(b"mine ", b"")
    assert "default-src 'none'" in server.ask("GET", "/").headers["Content-Security-Policy"]


def test_metrics_count_and_forget(server: Server) -> None:
    server.deploy("counted")
    server.invoke("counted")
    server.invoke("counted", "raise")
    text = server.ask("GET", "/metrics", Authorization=f"Bearer {server.token}").body.decode()
    assert 'gpuferry_function_invocations_total{function="counted",result="ok"} 1.0' in text
    assert 'gpuferry_function_invocations_total{function="counted",result="raised"} 1.0' in text
    assert 'gpuferry_function_run_seconds_count{function="counted"} 2.0' in text
    assert 'gpuferry_function_replicas{function="counted",state="idle"} 1.0' in text
    assert "_created" not in text  # as of a monitor: each is a series more
    server.system("DELETE", "functions/counted")
    text = server.ask("GET", "/metrics", Authorization=f"Bearer {server.token}").body.decode()
    assert "counted" not in text


def refused(*options: str, **environment: str) -> str:
    command = [*CLI, "functions", "serve", *options]
    environment = {**server_environment(), "GPUFERRY_RUNTIME_DIR": "/nowhere/at/all", **environment}
    with Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    return str(stderr)


def test_functions_are_of_one_server(server: Server, tmp_path: Path) -> None:
    """Two would take each other's files from under their replicas."""
    words = ("--driver", "none", "--listen", "127.0.0.1:0")
    state = {"GPUFERRY_STATE_DIR": str(server.folder / "state")}
    said = refused(*words, GPUFERRY_RUNTIME_DIR=str(tmp_path / "run"), **state)
    assert "another function server has its functions in" in said
    said = refused(*words, GPUFERRY_RUNTIME_DIR=str(server.folder / "run"), **state)
    assert "a function server already runs here" in said


def test_beyond_this_machine_it_needs_tls_and_a_token() -> None:
    assert "would speak in the clear" in refused("--listen", "0.0.0.0:0")
    assert "no token was given" in refused("--listen", "0.0.0.0:0", "--insecure")
    assert "can be guessed" in refused(
        "--listen", "0.0.0.0:0", "--insecure", GPUFERRY_FUNCTIONS_TOKEN="secret"
    )


def hint(address: str) -> str:
    with pytest.raises(CliError) as caught, Client(address, "", 60).ask("GET", "/healthz"):
        pass
    return caught.value.hint


def test_who_speaks_tls_to_none_or_none_to_tls_is_told_so(server: Server) -> None:
    assert f"its address is {server.address}" in hint(f"tls://{server.address}")
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=lambda: door.accept()[0].close(), daemon=True).start()
        address = f"127.0.0.1:{door.getsockname()[1]}"
        assert f"its address is tls://{address}" in hint(address)


def test_a_setting_of_another_policy_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    said = refused("--listen", "127.0.0.1:0", "--overrun", "10", GPUFERRY_RUNTIME_DIR=folder)
    assert "--policy fcfs: fcfs has no option overrun: it has pool" in said


def test_beyond_this_machine_invocations_need_the_token_too() -> None:
    token = "5dQ1jY7cWb3kVx9pLr2mTz8nHs4fGa6e"
    options = ("--listen", "0.0.0.0:0", "--insecure", "--driver", "none")
    with serving(*options, environment={"GPUFERRY_FUNCTIONS_TOKEN": token}) as server:
        assert server.address.startswith("127.0.0.1:")  # for which there can be a certificate
        server.deploy("mine")
        assert server.invoke("mine").status == 401
        got = server.ask("POST", "/function/mine", b"x", Authorization=f"Bearer {token}")
        assert (got.status, got.body) == (200, b"x")
        assert json.loads(server.system("GET", "functions").body)["functions"][0]["name"] == "mine"


@pytest.mark.parametrize("driver", ["none", "sim", "guest"])
def test_what_the_server_was_given_in_its_environment_is_not_in_theirs(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    given = {"GPUFERRY_FUNCTIONS_TOKEN": "of commands", "GPUFERRY_CLUSTER_KEY": "of the cluster"}
    for name, value in {**given, "GPUFERRY_TOKEN": "of guests", "GPUFERRY_MONITOR": "127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    deployment = Deployment("mine", source="pass", environment={"GPUFERRY_FUNCTIONS_TOKEN": "its own"})
    theirs = environment_of(FunctionsOptions(driver=driver), deployment)
    assert not {*given.values()} & {*theirs.values()}
    assert theirs["GPUFERRY_FUNCTIONS_TOKEN"] == "its own"
    assert theirs.get("GPUFERRY_TOKEN") == ("of guests" if driver == "guest" else None)


def test_a_damaged_endpoint_is_a_reason_why_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error of the function server's own."""
    monkeypatch.setenv("GPUFERRY_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("GPUFERRY_MONITOR", raising=False)
    tmp_path.chmod(0o700)
    (tmp_path / "endpoint").write_bytes(b"GPUFERRY_MONITOR=\xff\n")
    with pytest.raises(OSError, match="it is no text"):
        environment_of(FunctionsOptions(driver="guest"), Deployment("mine", source="pass"))
