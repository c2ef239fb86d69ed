"""The GPU server hears of invocations, and carries out what the policy decides about replicas' memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.helpers.monitor import Monitor, monitor
from tests.residency.lodgers import MIB, Operator

from .serving import Meeting, Server, serving, until
from .test_commands import gpuferry
from .test_cuda import CUDA

SIZE = 64 * MIB
GPUS = {"GPUFERRY_DEVICE": "sim", "GPUFERRY_SIM_MEMORY": "128MiB", "GPUFERRY_SIM_DEVICES": "1"}
# Has its memory, says that it is there, and makes no call until it is told to go on.
HELD = (
    CUDA.replace("1 << 20", str(SIZE))
    + """
import os
answer = handle

def handle(request):
    said = answer(request)
    if "here" in request.query:
        with open(request.query["here"], "w") as here: here.write(str(os.getpid()))
        with open(request.query["go"]) as go: go.read()
    return said
"""
)


# When nobody has been idle for long, those in invocations go too. How soon others are known to be is luck.
PATIENT = {"gpuferry.monitor.residency.policy:CONTENDED_SECONDS": 3600.0}


@pytest.fixture(scope="module")
def gpu_server() -> Iterator[Monitor]:
    with monitor("--pool", "3", "--oversubscribe", "4", environment=GPUS, constants=PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def operator(gpu_server: Monitor) -> Iterator[Operator]:
    operator = Operator(gpu_server)
    yield operator
    operator.close()


@pytest.fixture(autouse=True)
def vacant(operator: Operator) -> Iterator[None]:
    """Replicas' sessions end a little after their function server, and have memory until then."""
    yield
    operator.until_none_is_left()


@pytest.fixture
def functions(gpu_server: Monitor) -> Iterator[Server]:
    settings = gpu_server.settings() | {"GPUFERRY_CONTROL": gpu_server.control}
    with serving("--policy", "lalb", "--tokens", "3", environment=settings) as server:
        server.knows_gpus()
        yield server


def where(operator: Operator) -> dict[str, str]:
    """Where the memory of each function's replica is."""
    found: dict[str, str] = {}
    for session in operator.sessions().values():
        found[session.function] = operator.where(session.id)
    return found


@pytest.mark.system
def test_what_the_policy_sends_away_leaves_and_returns(functions: Server, operator: Operator) -> None:
    """`idle` has as much as the GPU has left for others, and never calls CUDA: only the policy wants room."""
    assert functions.knows_gpus() == [{"gpu": 0, "memory": 128 * MIB}]
    functions.deploy("model", HELD, most=1, gpu_memory=SIZE)
    functions.deploy("idle", most=1, gpu_memory=128 * MIB)
    assert functions.invoke("model").body == b"1"
    assert where(operator) == {"model": "resident"}
    assert functions.invoke("idle", body="x").body == b"x"
    until(lambda: where(operator), lambda seen: seen == {"model": "host"})
    functions.becomes("model", lambda shown: shown["replicas"][0]["resident"] is False)
    assert gpuferry(functions, "show", "model")[1].rstrip().endswith("0, away")
    assert functions.invoke("model").body == b"2"
    until(lambda: where(operator), lambda seen: seen == {"model": "resident"})


@pytest.mark.system
def test_the_time_of_gpus_is_counted_by_function(functions: Server) -> None:
    """Of the first invocation too, in which the memory comes; of who has none on a GPU nothing."""
    functions.deploy("counted", HELD, most=1)
    functions.deploy("without", most=1)
    held = Meeting(functions, "counted")
    held.come()
    functions.becomes("counted", lambda shown: "gpu" in shown["replicas"][0])
    held.go("on")
    assert held.asked.got().status == 200
    assert functions.invoke("without").status == 200
    shown, without = functions.show("counted"), functions.show("without")
    assert shown["gpu_seconds"] == shown["run_seconds"] > 0
    assert (without["gpu_seconds"], without["run_seconds"] > 0) == (0, True)
    metrics = functions.ask("GET", "/metrics", Authorization=f"Bearer {functions.token}").body.decode()
    assert (
        f'gpuferry_function_gpu_seconds_total{{function="counted",gpu="0"}} {shown["gpu_seconds"]}' in metrics
    )
    functions.system("DELETE", "functions/counted")
    metrics = functions.ask("GET", "/metrics", Authorization=f"Bearer {functions.token}").body.decode()
    assert "counted" not in metrics


@pytest.mark.system
def test_who_is_in_an_invocation_stays_and_who_is_between_two_goes(
    functions: Server, operator: Operator
) -> None:
    """Two are resident. One is in an invocation in which it does nothing, and did its last call before the
    other one: by its calls it would leave first.
    """
    for name in ("busy", "spare", "third"):
        functions.deploy(name, HELD, most=1)  # the policy counts nothing: the GPU server makes room
    held = Meeting(functions, "busy")
    held.come()
    assert functions.invoke("spare").body == b"1"
    assert where(operator) == {"busy": "resident", "spare": "resident"}
    assert functions.invoke("third").body == b"1"
    assert where(operator) == {"busy": "resident", "spare": "host", "third": "resident"}
    held.go("on")
    assert held.asked.got().body == b"1"


@pytest.mark.system
def test_a_replica_whose_api_server_died_is_replaced(functions: Server, operator: Operator) -> None:
    """What it had on the GPU is gone: its handler would fail for ever."""
    functions.deploy("hit", HELD, most=1)
    assert functions.invoke("hit").body == b"1"
    replica = functions.show("hit")["replicas"][0]["pid"]
    (session,) = [one for one in operator.sessions().values() if one.function == "hit"]
    os.kill(session.server_pid, signal.SIGKILL)
    functions.becomes("hit", lambda shown: replica not in [one["pid"] for one in shown["replicas"]])
    assert functions.invoke("hit").body == b"1"
    assert any("API server died" in line["text"] for line in functions.logs("hit"))


def test_a_replica_that_found_no_gpu_server_is_replaced() -> None:
    """Its guest asks once, as CUDA initialises once: of a monitor that starts later it would never hear."""
    source = CUDA.replace(
        "    if not address.value", "    import os; print(os.getpid())\n    if not address.value"
    )
    with serving(environment={"GPUFERRY_MONITOR": "127.0.0.1:1", "GPUFERRY_TOKEN": "x" * 32}) as server:
        server.deploy("early", source, most=1)
        for _ in range(2):
            got = server.invoke("early")
            assert (got.error, got.ran) == ("raised", "yes")
        pids = {line["text"] for line in server.logs("early") if line["text"].isdecimal()}
        assert len(pids) == 2


@pytest.mark.system
def test_a_lost_gpu_is_noticed_by_the_handlers_error(gpu_server: Monitor, operator: Operator) -> None:
    """Where nobody hears of the GPU server: the first error says it, and the next invocation is right."""
    settings = gpu_server.settings()
    with serving(environment=settings) as server:
        server.deploy("alone", HELD, most=1)
        assert server.invoke("alone").body == b"1"
        (session,) = [one for one in operator.sessions().values() if one.function == "alone"]
        os.kill(session.server_pid, signal.SIGKILL)
        got = until(lambda: server.invoke("alone"), lambda got: got.status != 200)
        assert (got.error, got.ran) == ("raised", "yes")
        assert server.invoke("alone").body == b"1"
