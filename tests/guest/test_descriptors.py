"""Programs that close what they did not open, and threads that outlive main."""

from __future__ import annotations

from pathlib import Path

from tests.guest.conftest import Guest
from tests.guest.fake_server import FakeServer
from tests.helpers import toolchain
from tests.helpers.running import guest_environment, run


def test_without_standard_streams_nothing_is_printed_to_the_server(guest: Guest) -> None:
    """The connection had the number of one of them, and what a daemon prints broke it."""
    lines = """
for descriptor in range(3): os.close(descriptor)
start()
for descriptor in range(3):
    try:
        os.write(descriptor, b"a line for a log that nobody reads")
    except OSError:
        continue
    os._exit(7)
os._exit(cu("cuCtxSynchronize"))
"""
    assert guest(lines).status == 0


def test_files_that_a_program_opens_after_it_closed_everything_are_its_own(
    guest: Guest, tmp_path: Path
) -> None:
    """Eight bytes that should have woken a thread of ours were written to one of them."""
    lines = f"""
start()
os.closerange(3, 1 << 12)
files = [os.open({str(tmp_path)!r}, os.O_TMPFILE | os.O_RDWR) for _ in range(40)]
print(cu("cuCtxSynchronize") != 0, cu("cuCtxSynchronize") != 0, sum(os.fstat(file).st_size for file in files))
"""
    outcome = guest(lines)
    assert (outcome.status, outcome.stdout) == (0, "True True 0\n")
    assert "Bad file descriptor" in outcome.stderr


def test_few_descriptors(guest: Guest) -> None:
    lines = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)); start()"
    assert guest(lines).status == 0


def test_threads_that_call_when_main_has_returned(server: FakeServer) -> None:
    """They are told that the driver is shutting down, not that the server was lost."""
    program = toolchain.program(Path(__file__).with_name("late_threads.c"))
    outcome = run([program], guest_environment(server.settings))
    assert (outcome.status, outcome.stderr) == (0, "")
    assert set(outcome.stdout.split()) <= {"4"}
