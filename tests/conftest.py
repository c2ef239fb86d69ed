"""How hypothesis looks for examples, and what is shown of a test that fails.

`make test` tries the same ones every time, so that its verdict is about the change; GPUFERRY_FUZZ=1
(`make test-all`) looks for new ones, and for more. No deadlines: the machine is shared.
"""

import gc
import os
import signal
import zlib
from collections import defaultdict
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import logs

if TYPE_CHECKING:
    from tests.helpers.certificates import Certificates

# In the background of a script, or under nohup, they are ignored, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

# What images are known to load is remembered for the user's next program, and no test may tell another one.
os.environ["CUDA_CACHE_DISABLE"] = "1"

# What a worker has once it has collected stays until it ends: to look through all of it for garbage again and
# again took a fifth of the time of what tests do in it.
gc.disable()

settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("steady", settings.get_profile("fuzz"), derandomize=True, max_examples=50)
settings.load_profile("fuzz" if os.environ.get("GPUFERRY_FUZZ") else "steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who needs the browser comes first, so that one worker has them all: one more costs 20 s of CPU."""
    items.sort(key=lambda item: "browser" not in getattr(item, "fixturenames", ()))
    _leave_to_test_all(items)


def _leave_to_test_all(items: list[pytest.Item]) -> None:
    """Of cases that are marked `some(n)` all but n are slow, the same ones every time: chosen by their names'
    checksums, so that they are spread over whatever the cases are made of.
    """
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("some") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        found.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        most: int = found[0].get_closest_marker("some").args[0]  # type: ignore[union-attr]
        for item in found[most:]:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """From here on there is garbage."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> "Certificates":
    """Those of one authority, for all tests that spoil none."""
    from tests.helpers.certificates import Certificates  # which takes its time to import

    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Other processes' words are gone when the test is."""
    report = yield
    if report.failed:
        report.sections += logs.sections()
    logs.forget()
    return report
