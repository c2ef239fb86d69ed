"""What served one tenant never serves another; and no tenant comes where nothing would keep it apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuferry.monitor.devices.choice import server_environment
from gpuferry.monitor.door.tokens import proof
from gpuferry.monitor.jail.choose import choose
from gpuferry.monitor.jail.jail import Jail
from gpuferry.monitor.settings.monitor import Config

from tests.monitor import harness
from tests.registry.guest import Guest


def token_of(state: str, runtime: str, tenant: str) -> str:
    made = harness.gpuferry(runtime, "token", "create", tenant, GPUFERRY_STATE_DIR=state)
    assert made.returncode == 0, made.stderr
    (token,) = made.stdout.splitlines()
    assert proof.tenant_of(token) == tenant
    return str(token)


@pytest.mark.system
def test_each_session_has_a_process_of_its_own_once_tenants_come(tmp_path: Path) -> None:
    """The operator's sessions share processes, until the first tenant is there; then nobody does."""
    state = str(tmp_path / "state")
    with harness.monitor("--pool", "1", GPUFERRY_STATE_DIR=state) as monitor:
        monitor.wait_idle(1)
        served: list[int] = []

        def serve(*who: str) -> None:
            with Guest(monitor.tcp, *who) as guest:
                assert guest.echo(b"x") == b"x"
                (session,) = monitor.wait_for(lambda s: s.sessions, "its session").sessions
                served.append(session.server_pid)
            monitor.wait_idle(1)

        serve(monitor.token)
        serve(monitor.token)
        assert served[0] == served[1]
        one, other = (token_of(state, monitor.runtime, name) for name in ("one", "other"))
        for who in (one, other, monitor.token, one):
            serve(who)
        assert len(set(served[1:])) == 5
        harness.wait_until(lambda: not harness.alive(set(served)), "the end of all that served")


def holds_kernels(pid: int) -> bool:
    """Whether this API server holds kernels to their own memory."""
    return b"GPUFERRY_SIM_CHECK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize(
    ("wish", "before", "after"), [("auto", False, True), ("on", True, True), ("off", False, False)]
)
def test_kernels_are_held_to_their_own_memory_from_the_first_tenant_on(
    tmp_path: Path, wish: str, before: bool, after: bool
) -> None:
    """Also where its token is made while the monitor runs."""
    state = str(tmp_path / "state")
    with harness.monitor("--pool", "1", "--check-kernels", wish, GPUFERRY_STATE_DIR=state) as monitor:
        for tenant, held in (("", before), ("acme", after)):
            monitor.wait_idle(1)
            token = token_of(state, monitor.runtime, tenant) if tenant else monitor.token
            with Guest(monitor.tcp, token):
                (session,) = monitor.wait_for(lambda s: s.sessions, "its session").sessions
                assert holds_kernels(session.server_pid) == held


def test_jails_of_tenants_hold_kernels_to_their_own_memory(tmp_path: Path) -> None:
    config = Config(runtime=tmp_path, token=b"", simulated=True, devices=1, jail="on")
    jail = choose(config, server_environment(True))
    assert isinstance(jail, Jail)
    settings = [jail.enter(apart).arguments() for apart in (False, True)]
    jail.close()
    assert ["GPUFERRY_SIM_CHECK" in one for one in settings] == [False, True]


def test_tenants_need_jails_on_a_simulated_device(tmp_path: Path) -> None:
    """Fake API servers are a command of one's own, for which there is no jail."""
    state = str(tmp_path / "state")
    token_of(state, str(tmp_path / "run"), "acme")
    with harness.failing(GPUFERRY_STATE_DIR=state, GPUFERRY_MONITOR_JAIL="auto") as (answer, process, log):
        assert process.wait(harness.DEADLINE) == 1
        assert "--jail off" in answer + log.read_text()
    with (
        harness.monitor(GPUFERRY_STATE_DIR=state, GPUFERRY_MONITOR_JAIL="off") as monitor,
        Guest(monitor.tcp, monitor.token) as guest,
    ):
        assert guest.echo(b"x") == b"x"


def test_a_jail_that_must_be_and_cannot(tmp_path: Path) -> None:
    with harness.failing("--jail", "on") as (answer, process, log):
        assert process.wait(harness.DEADLINE) == 1
        assert "GPUFERRY_APISERVER" in answer + log.read_text()


def test_what_has_no_jail_is_said_at_the_start() -> None:
    with harness.monitor() as monitor:
        monitor.wait_for_log('"API servers have no jail", "reason": "--jail off"')
