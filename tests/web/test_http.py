"""What the web server answers, and to whom."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpuferry.monitor.settings.errors import ConfigError
from gpuferry.monitor.settings.monitor import check_exposure
from gpuferry.monitor.views.callers import Caller
from gpuferry.specs._generated import node_pb2, wire
from prometheus_client.parser import text_string_to_metric_families

from .stage import TOKEN, Stage, empty, server, session


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(empty()) as stage:
        yield stage


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        connection.request(method, path, headers=headers)
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
    assert "cuGraphCreate" in missing
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
    assert (status, text) == (503, b"not ready\nno API server is ready\n")
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
    connection.request("GET", "/api/events")
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
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(stage.url, "/api/status", method)[0] == 405
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/", "/nothing"):
        assert ask(stage.url, path)[0] in (403, 404)


def basic(password: bytes) -> str:
    return "Basic " + base64.b64encode(b"prometheus:" + password).decode()


def test_beyond_this_machine_it_asks_for_the_token() -> None:
    with Stage(empty(), "0.0.0.0:0") as stage:
        url = stage.url.replace("0.0.0.0", "127.0.0.1")
        for path in ("/", "/metrics", "/api/status", "/api/events", "/static/page.js"):
            status, headers, body = ask(url, path)
            assert status == 401
            assert headers["WWW-Authenticate"].startswith("Basic ")
            assert b"gpu-a" not in body
        assert ask(url, "/healthz")[0] == 200
        assert ask(url, "/readyz")[0] == 503
        right = (f"Bearer {TOKEN.decode()}", f"bearer {TOKEN.decode()}", basic(TOKEN))
        for header in right:
            assert ask(url, "/metrics", Authorization=header)[0] == 200
        for header in ("Bearer no", basic(b"no"), "Basic !", "Digest x", "Bearer", basic(TOKEN)[:-8]):
            assert ask(url, "/metrics", Authorization=header)[0] == 401


@pytest.mark.parametrize("http_address", ["0.0.0.0:7780", "[::]:7780"])
def test_beyond_this_machine_only_with_a_token(http_address: str) -> None:
    with pytest.raises(ConfigError, match="no token was given"):
        check_exposure(None, "unix:/control", http_address, False)
    check_exposure(None, "unix:/control", http_address, True)
    check_exposure(None, "unix:/control", "auto", False)


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
        # What is not for tenants asks for the operator's, as if no token had come.
        assert ask(url, "/login", Authorization="Bearer tenants")[0] == 401
        everything = json.loads(ask(url, "/api/status", Authorization=f"Bearer {TOKEN.decode()}")[2])
        assert len(everything["sessions"]) == 2
