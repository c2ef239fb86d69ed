"""No wait depends on the time of day: who reads that clock is listed here, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("apiserver", "codegen", "guest", "migration", "monitor", "native")
KINDS = {".py", ".pyx", ".pxi", ".pxd", ".c", ".h", ".j2"}
TIME_OF_DAY = re.compile(
    r"time\.time\(|time\.time_ns|time\.time\b|datetime|CLOCK_REALTIME|gettimeofday|time\(NULL\)|localtime|gmtime"
    r"|pthread_mutex_timedlock|sem_timedwait|PTHREAD_COND_INITIALIZER"
)
ALLOWED = {
    "apiserver/log.py": "stamps of log lines",
    "apiserver/moving.py": "when a snapshot was made, for people",
    "monitor/cli/checks/keeping.py": "whether files are from a time that has not come",
    "monitor/cli/migrate.py": "when a snapshot was made, for people",
    "monitor/cli/server.py": "when a server was registered, for people",
    "monitor/cli/token.py": "when a token was made, for people",
    "monitor/cluster/registry/directory.py": "when a server was registered, for people",
    "monitor/door/tokens/book.py": "when a token was made, for people; names of orders to end sessions",
    "monitor/jail/filter.py": "names of system calls",
    "monitor/moves/snapshots.py": "when a snapshot was made, for people",
    "monitor/service/authority.py": "from when until when a certificate holds",
    "monitor/service/tls.py": "whether a certificate holds today",
    "monitor/tenants/usage.py": "which day it is, for accounts",
    "monitor/views/stats/observatory.py": "stamps of the page's charts",
    "native/driver_interop/error_log.c.h": "stamps of log lines",
    "native/simdevice/exec/services.c": "%globaltimer of PTX, which is the time of day",
    "guest/src/entry.c": "a condition that nobody waits on for a limited time",
    "guest/src/loading.c": "a condition that nobody waits on for a limited time",
    "guest/src/host_call.c": "a condition that nobody waits on for a limited time",
    "native/simdevice/enter.c": "a condition that nobody waits on for a limited time",
    "native/simdevice/later.c": "a condition that nobody waits on for a limited time",
    "native/simdevice/placement.c": "a condition that nobody waits on for a limited time",
    "native/simdevice/scheduler.c": "a condition that nobody waits on for a limited time",
}
TIMED = re.compile(r"pthread_cond_timedwait\((.*?),")
INITIALISED = re.compile(r"(\w+)\s*=\s*PTHREAD_COND_INITIALIZER|pthread_cond_init\(&([\w.]+), NULL\)")


def sources() -> list[Path]:
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in KINDS and "_generated" not in path.parts
    ]


def readers() -> set[str]:
    """Files that read the time of day, or could wait by it."""
    return {
        str(path.relative_to(ROOT))
        for path in sources()
        if TIME_OF_DAY.search(path.read_text(errors="replace"))
    }


def test_who_reads_the_time_of_day_is_listed() -> None:
    assert readers() <= ALLOWED.keys()


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_the_list_is_no_longer_than_it_must_be(name: str) -> None:
    assert name in readers()


def test_who_waits_for_a_limited_time_waits_by_the_monotonic_clock() -> None:
    """A condition that is initialised by default measures its waits by the time of day."""
    for path in sources():
        text = path.read_text(errors="replace")
        by_default = {name for found in INITIALISED.findall(text) for name in found if name}
        for condition in TIMED.findall(text):
            name = re.split(r"[.>&]", condition)[-1].strip()
            assert name not in by_default, f"{path}: {name}"


def test_nobody_waits_in_a_way_that_forgets_a_cancellation() -> None:
    """As asyncio.wait_for does before Python 3.12: monitor/service/waiting.py has what does not."""
    callers = [path for path in sources() if "asyncio.wait_for(" in path.read_text(errors="replace")]
    assert callers == []
