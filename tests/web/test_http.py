"""What the web server answers, and to whom."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import check_exposure
from gpuferry.monitor.settings.monitor_options import MonitorOptions
from gpuferry.monitor.views.callers import Caller
from gpuferry.monitor.views.web.key import page_key
from gpuferry.specs._generated import node_pb2, wire
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.certificates import Certificates
from tests.helpers.tokens import token_of

from .stage import KEY, Stage, empty, server, session


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(empty()) as stage:
        yield stage


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {KEY}"} | headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def metrics(stage: Stage) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    status, headers, body = ask(stage.url, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_what_the_monitor_itself_takes_is_there(stage: Stage) -> None:
    """A leak of descriptors or memory over weeks is seen nowhere else."""
    found = metrics(stage)
    assert 3 < found["process_open_fds"][()] < found["process_max_fds"][()]
    assert found["process_resident_memory_bytes"][()] > 1 << 20


def test_every_series_is_there_from_the_start(stage: Stage) -> None:
    found = metrics(stage)
    assert set(found) >= {
        "gpuferry_build_info",
        "gpuferry_server_up",
        "gpuferry_pool_contexts",
        "gpuferry_sessions",
        "gpuferry_session_start_seconds_bucket",
        "gpuferry_wire_bytes_total",
        "gpuferry_api_calls_total",
        "gpuferry_api_call_seconds_count",
        "gpuferry_api_call_seconds_sum",
        "gpuferry_unsupported_calls_total",
        "gpuferry_queue_depth",
        "gpuferry_migrations_total",
        "gpuferry_migration_downtime_seconds_count",
        "gpuferry_migration_bytes_total",
        "gpuferry_gpu_memory_bytes",
    }
    assert found["gpuferry_sessions"][()] == 0
    assert found["gpuferry_wire_bytes_total"] == {(("direction", "in"),): 0, (("direction", "out"),): 0}
    assert found["gpuferry_session_start_seconds_count"][()] == 0
    assert {dict(labels)["state"] for labels in found["gpuferry_pool_contexts"]} == {
        "starting",
        "idle",
        "busy",
        "stopping",
    }
    assert not any(name.endswith("_created") for name in found)
    operations = {dict(labels)["api"] for labels in found["gpuferry_api_calls_total"]}
    assert operations == set(wire.OPERATIONS.values())
    missing = {dict(labels)["api"] for labels in found["gpuferry_unsupported_calls_total"]}
    assert missing == set(wire.UNSUPPORTED.values())
    assert "cuStreamBeginRecaptureToGraph" in missing
    assert not missing & operations


def test_labels_of_a_gpu_are_dcgms(stage: Stage) -> None:
    memory = metrics(stage)["gpuferry_gpu_memory_bytes"]
    labels = {
        "kind": "used",
        "gpu": "1",
        "UUID": "GPU-02020202-0202-0202-0202-020202020202",
        "modelName": "NVIDIA A100-SXM4-40GB",
        "Hostname": "gpu-a",
    }
    assert memory[tuple(sorted(labels.items()))] == 1 << 30


def test_what_nvml_does_not_say_is_not_made_up(stage: Stage) -> None:
    blind = empty(1)
    blind.devices[0].ClearField("memory_used")
    blind.devices[0].ClearField("utilization")
    stage.show(blind)
    found = metrics(stage)
    assert {dict(labels)["kind"] for labels in found["gpuferry_gpu_memory_bytes"]} == {
        "total",
        "grantable",
        "granted",
        "resident",
    }
    assert "gpuferry_gpu_utilization_ratio" not in found


def test_sessions_are_counted_when_somebody_looks(stage: Stage) -> None:
    busy = empty()
    busy.sessions.append(session(1))
    stage.show(busy)
    one = SimpleNamespace(
        key=1,
        session=1,
        ready=True,
        stats=node_pb2.Stats(session=1, bytes_in=77),
    )
    stage.pool.servers[1] = one
    assert metrics(stage)["gpuferry_wire_bytes_total"][(("direction", "in"),)] == 77
    assert metrics(stage)["gpuferry_wire_bytes_total"][(("direction", "in"),)] == 77
    assert metrics(stage)["gpuferry_sessions"][()] == 1


def test_health(stage: Stage) -> None:
    assert ask(stage.url, "/healthz")[0] == 200
    status, _, text = ask(stage.url, "/readyz")
    assert (status, text) == (503, b"not ready\nno API server is ready for a guest\n")
    stage.pool.servers[1] = SimpleNamespace(ready=server(0, 1), session=0, stats=None)
    status, _, text = ask(stage.url, "/readyz")
    assert (status, text) == (200, b"ready\n")
    stage.problems[1] = "the device fell off the bus"
    status, _, text = ask(stage.url, "/readyz")
    assert (status, text) == (200, b"ready\ngpu 1: the device fell off the bus\n")
    stage.broker.draining = True
    status, _, text = ask(stage.url, "/readyz")
    assert status == 503
    assert text.startswith(b"not ready\ndraining: no new sessions\n")
    assert ask(stage.url, "/healthz")[0] == 200


def test_status_is_that_of_the_command(stage: Stage) -> None:
    status, headers, body = ask(stage.url, "/api/status")
    assert (status, headers.get_content_type()) == (200, "application/json")
    content = json.loads(body)
    assert content["schema"] == "gpuferry.status/1"
    assert content["devices"][0]["state"] == "up"
    assert content["devices"][0]["utilization"] == 0.0
    assert content["servers"][0]["state"] == "idle"


def test_events_begin_with_the_past_and_the_present(stage: Stage) -> None:
    connection = http.client.HTTPConnection(urlsplit(stage.url).netloc, timeout=120)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert answer.headers.get_content_type() == "text/event-stream"
    names: list[str] = []
    while len(names) < 3:
        line = answer.readline().decode().rstrip()
        if line.startswith("event: "):
            names.append(line.removeprefix("event: "))
        elif line.startswith("data: "):
            json.loads(line.removeprefix("data: "))
    assert names == ["history", "status", "status"]
    connection.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil.example", "localhost.evil:1", ""]
)
def test_a_name_that_was_made_to_point_here(stage: Stage, host: str) -> None:
    assert ask(stage.url, "/api/status", Host=host)[0] in (400, 403)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1:7780", "127.3.2.1", "[::1]", "[::1]:80"]
)
def test_names_of_this_machine(stage: Stage, host: str) -> None:
    assert ask(stage.url, "/api/status", Host=host)[0] == 200


def test_it_only_reads(stage: Stage) -> None:
    """Whoever has the key: nothing else of a monitor takes it."""
    paths = ("/", "/api/status", "/api/events", "/metrics", "/healthz", "/readyz", "/static/page.js")
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in paths:
            assert ask(stage.url, path, method)[0] == 405
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/", "/nothing"):
        assert ask(stage.url, path)[0] in (403, 404)


def test_the_head_of_a_stream_is_none(stage: Stage) -> None:
    """It was answered for ever: nothing else was, on that connection."""
    assert ask(stage.url, "/api/events", "HEAD")[0] == 405
    assert ask(stage.url, "/api/status", "HEAD")[0] == 200


def test_the_key_is_not_the_token_and_does_not_tell_it() -> None:
    token = token_of("the monitor")
    key = page_key(None, token.encode())
    assert page_key(None, token.encode()) == key  # pages that are open outlive a restart
    assert page_key(None, token_of("another").encode()) != key
    assert key not in token
    assert token not in key


def test_a_key_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    assert page_key(str(file), b"token") == KEY
    file.write_text("open sesame\n")
    with pytest.raises(ConfigError, match="can be guessed"):
        page_key(str(file), b"token")
    with pytest.raises(ConfigError, match="No such file"):
        page_key(str(tmp_path / "none"), b"token")


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0"])
def test_it_asks_for_the_key(address: str) -> None:
    """Of neighbours on the machine too."""
    with Stage(empty(), address) as stage:
        url = stage.url.replace("0.0.0.0", "127.0.0.1")
        for path in ("/metrics", "/api/status", "/api/events", "/static/page.js", "/static/", "/nothing"):
            status, headers, body = ask(url, path, Authorization="")
            assert status == 401
            assert headers["WWW-Authenticate"].startswith("Bearer ")
            assert b"gpu-a" not in body
        status, headers, _ = ask(url, "/", Authorization="")
        assert (status, headers["Location"]) == (303, "/login")
        assert ask(url, "/healthz", Authorization="")[0] == 200
        assert ask(url, "/readyz", Authorization="")[0] == 503
        for header in (f"Bearer {KEY}", f"bearer {KEY}", basic(KEY)):
            assert ask(url, "/metrics", Authorization=header)[0] == 200
        for header in ("Bearer no", basic("no"), "Basic !", "Digest x", "Bearer", basic(KEY)[:-8]):
            assert ask(url, "/metrics", Authorization=header)[0] == 401


def test_a_login_leaves_a_cookie_that_no_script_and_no_other_page_can_use(stage: Stage) -> None:
    assert ask(stage.url, "/login", Authorization="")[0] == 200
    assert ask(stage.url, "/login", "POST", Authorization="Bearer no")[0] == 401
    status, headers, _ = ask(stage.url, "/login", "POST")
    assert status == 204
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert KEY not in cookie
    assert ask(stage.url, "/api/status", Authorization="", Cookie=cookie)[0] == 200
    assert ask(stage.url, "/api/status", Authorization="", Cookie=cookie[:-1] + "x")[0] == 401


def test_a_cookie_of_an_earlier_start_keeps_nobody_from_logging_in(stage: Stage) -> None:
    """A monitor may make its key anew at each start, and a browser sends what it has with the new one."""
    name = ask(stage.url, "/login", "POST")[1]["Set-Cookie"].partition("=")[0]
    stale = f"{name}={'0' * 64}"
    assert ask(stage.url, "/login", "POST", Authorization="Bearer no", Cookie=stale)[0] == 401
    status, headers, _ = ask(stage.url, "/login", "POST", Cookie=stale)
    assert status == 204
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(stage.url, "/api/status", Authorization="", Cookie=cookie)[0] == 200


def test_what_browsers_are_told(stage: Stage) -> None:
    for path in ("/", "/login", "/nothing"):
        headers = ask(stage.url, path)[1]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"


def test_over_tls(certificates: Certificates) -> None:
    """With a certificate that follows its files, and a cookie that never travels in the clear."""
    identity = certificates.identity()
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    with Stage(empty(), identity=identity) as stage:
        connection = http.client.HTTPSConnection(urlsplit(stage.url).netloc, timeout=120, context=trusting)
        connection.request("POST", "/login", headers={"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        assert (answer.status, connection.sock.version()) == (204, "TLSv1.3")
        assert "Secure" in answer.headers["Set-Cookie"].split("; ")
        connection.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(stage.url, "/healthz")


@pytest.mark.parametrize("http_address", ["0.0.0.0:7780", "[::]:7780"])
def test_beyond_this_machine_only_with_a_token(http_address: str) -> None:
    options = MonitorOptions(http=http_address, insecure=True)
    with pytest.raises(ConfigError, match="no token was given"):
        check_exposure(options, False)
    check_exposure(options, True)
    check_exposure(MonitorOptions(), False)


def test_the_usual_port_may_be_taken() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 7780))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        with Stage(empty(), "auto") as stage:
            assert urlsplit(stage.url).port != 7780
            assert ask(stage.url, "/healthz")[0] == 200


def test_beyond_loopback_a_tenant_sees_its_own_and_opens_nothing_else() -> None:
    class Callers:
        async def of(self, token: str) -> Caller | None:
            return Caller("acme") if token == "tenants" else None

    busy = empty()
    busy.sessions.extend([session(1, tenant="acme"), session(2, tenant="other")])
    callers: Any = Callers()
    with Stage(busy, "0.0.0.0:0", callers=callers) as stage:
        url = stage.url.replace("0.0.0.0", "127.0.0.1")
        mine = json.loads(ask(url, "/api/status", Authorization="Bearer tenants")[2])
        assert [one["id"] for one in mine["sessions"]] == [1]
        assert ask(url, "/", Authorization="Bearer tenants")[0] == 200
        assert ask(url, "/api/status", Authorization="Bearer nobodys")[0] == 401
        # What is not for tenants wants the page's key, as if no token had come.
        assert ask(url, "/login", "POST", Authorization="Bearer tenants")[0] == 401
        everything = json.loads(ask(url, "/api/status", Authorization=f"Bearer {KEY}")[2])
        assert len(everything["sessions"]) == 2
