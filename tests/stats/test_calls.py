"""Calls by operation, on their way from an API server and a guest to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.adversity.sessions import PAGE, session
from tests.apiserver.guest import handle
from tests.helpers import page, programs, toolchain
from tests.helpers.running import guest_environment, run
from tests.monitor import harness

INVALID_VALUE = 1

Series = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def monitor() -> Iterator[harness.Monitor]:
    with harness.monitor("--pool", "2", "--http", "127.0.0.1:0", server=None) as running:
        running.wait_idle(2)
        yield running


class Scrape:
    """What is known at one moment."""

    def __init__(self, monitor: harness.Monitor) -> None:
        text = page.fetch(monitor.runtime, "/metrics")
        self.series: dict[str, Series] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.series.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value

    def since(self, before: Scrape, name: str) -> Series:
        """What a counter counted; labels of what it did not are left out."""
        found, old = self.series[name], before.series[name]
        assert found.keys() == old.keys(), "series that come and go"
        return {labels: found[labels] - old[labels] for labels in found if found[labels] != old[labels]}


def scrape_when(monitor: harness.Monitor, condition: Callable[[Scrape], Any]) -> Scrape:
    """An API server that is slow to answer is told of as it was a moment ago."""
    last: list[Scrape] = []

    def reached() -> Any:
        last[:] = [Scrape(monitor)]
        return condition(last[0])

    harness.wait_until(reached, "the figures")
    return last[0]


def test_calls_by_result_while_the_session_runs_and_after_it(monitor: harness.Monitor) -> None:
    before = Scrape(monitor)
    expected = {
        ("sessionMemMap", "ok"): 3,
        ("sessionMemMap", "error"): 2,
        ("cuEventCreate", "ok"): 1,
        ("cuEventQuery", "ok"): 1,
        ("cuEventQuery", "error"): 4,
        ("cuCtxSynchronize", "ok"): 6,
    }
    with session(monitor, memory=64 * PAGE) as guest:
        for page in range(3):
            guest.map(at=page)
        for _ in range(2):
            guest.send("sessionMemMap", address=1, size=PAGE)
        guest.send("cuEventCreate", phEvent=handle("event", 0), Flags=0)
        assert guest.call("cuEventQuery", hEvent=handle("event", 0)).status == 0
        for _ in range(4):
            assert guest.call("cuEventQuery", hEvent=handle("event", 1)).status != 0
        for _ in range(6):
            guest.sync()
        during = scrape_when(monitor, lambda s: s.since(before, "gpuferry_api_calls_total") == expected)
        assert Scrape(monitor).since(during, "gpuferry_api_calls_total") == {}, "counted twice"
    monitor.wait_idle(2)
    after = Scrape(monitor)
    assert after.since(before, "gpuferry_api_calls_total") == {**expected, ("sessionClose", "ok"): 1}
    assert after.since(before, "gpuferry_api_call_seconds_count")["cuCtxSynchronize",] == 6
    assert after.since(before, "gpuferry_api_call_seconds_sum")["cuCtxSynchronize",] > 0


def test_calls_that_nobody_waits_for_are_timed_by_sample(monitor: harness.Monitor) -> None:
    before = Scrape(monitor)
    with session(monitor) as guest:
        for _ in range(61 * 20):
            guest.send("sessionFence")
        guest.sync()
        found = scrape_when(
            monitor, lambda s: s.since(before, "gpuferry_api_calls_total").get(("cuCtxSynchronize", "ok"))
        )
    assert found.since(before, "gpuferry_api_calls_total")["sessionFence", "ok"] == 61 * 20
    assert found.since(before, "gpuferry_api_call_seconds_count")["sessionFence",] in (19, 20)


def test_what_a_program_called_and_did_not_get(monitor: harness.Monitor) -> None:
    before = Scrape(monitor)
    unsupported = programs.program("unsupported")
    settings = {"GPUFERRY_MONITOR": monitor.address, "GPUFERRY_TOKEN": monitor.token}
    for _ in range(2):
        outcome = run([toolchain.program(unsupported.source, unsupported.flags)], guest_environment(settings))
        assert outcome.status == 0, outcome.stderr
    monitor.wait_idle(2)
    after = Scrape(monitor)
    assert after.since(before, "gpuferry_unsupported_calls_total") == {
        ("cuStreamBeginRecaptureToGraph",): 2,
    }
    calls = after.since(before, "gpuferry_api_calls_total")
    assert calls["sessionLaunch", "ok"] == calls["sessionFill", "ok"] == calls["sessionCopyOut", "ok"] == 2
    assert not [labels for labels in calls if labels[1] == "error"]


@pytest.mark.parametrize("function", [0, 255, 4095, 0xFFFFFFFF])
def test_a_guest_cannot_invent_functions(monitor: harness.Monitor, function: int) -> None:
    before = Scrape(monitor)
    with session(monitor) as guest:
        guest.send("sessionUnsupported", function=function, calls=1)
        assert guest.sync().latched == INVALID_VALUE
        assert Scrape(monitor).since(before, "gpuferry_unsupported_calls_total") == {}


def test_a_guest_cannot_make_a_supported_function_look_unsupported(monitor: harness.Monitor) -> None:
    before = Scrape(monitor)
    with session(monitor) as guest:
        guest.send("sessionUnsupported", function=258, calls=1)  # cuInit
        assert (guest.sync().status, Scrape(monitor).since(before, "gpuferry_unsupported_calls_total")) == (
            0,
            {},
        )
