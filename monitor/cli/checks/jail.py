"""Whether what runs a kernel is kept from everything else: jails, and what a device can reach by itself."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Iterator
from pathlib import Path

from gpuferry.guest.endpoint import runtime_directory

from ...devices.choice import choose as choose_device
from ...devices.choice import server_environment
from ...jail import cgroups
from ...jail.choose import NoJail, look
from ...settings.errors import ConfigError
from ...settings.monitor import Config
from ...settings.monitor_options import MonitorOptions
from ...settings.sources import fields_of, load
from .check import Check, python
from .settings import in_force

# With our unit's KillMode=process a delegated unit does not start again while sessions live (its comment).
GROUPS = "as a systemd service: Delegate=yes and KillMode=mixed, and sessions then end with their monitor"

# CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS of each device; 1: kernels may touch all memory of the process.
_REACH = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
count, value = ctypes.c_int(), ctypes.c_int()
assert driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
for device in range(count.value):
    assert driver.cuDeviceGetAttribute(ctypes.byref(value), 88, device) == 0
    if value.value:
        print(device)
"""


def jail() -> Iterator[Check]:
    """Check what the monitor that runs keeps its API servers in, or what the next one could."""
    running = in_force("monitor")
    try:
        values = running.settings if running else load(MonitorOptions, "monitor", {}, None).values
        machine = choose_device(values.device)
    except ConfigError:
        return  # another check says so
    environment = server_environment(machine.simulated)
    if machine.simulated and values.check_kernels == "off":
        detail = "--check-kernels off: kernels can read and write all memory of their API server"
        yield Check("reach of kernels", "note", detail, "only for programs of one's own")
    if values.jail == "off":
        yield Check("jail", "note", "--jail off: programs can do what the monitor can", "only for one's own")
    elif running and running.jailed is False:
        detail = "the monitor that runs has none: programs can do what it can"
        yield Check("jail", "note", detail, "its log says why; or start it with --jail on")
    else:
        config = Config(
            **fields_of(values),
            runtime=Path(runtime_directory()),
            token=b"",
            simulated=machine.simulated,
            devices=machine.devices,
        )
        yield from _jail(config, environment, running.counted if running else None)
    yield _reach(environment)


def _jail(config: Config, environment: dict[str, str], counted: bool | None) -> Iterator[Check]:
    found = look(config, environment)
    if isinstance(found, NoJail):
        yield Check("jail", "note", f"API servers have none: {found.reason}", found.next_step)
        return
    yield Check("jail", "ok", "API servers, keepers and compilers live in jails")
    if not found.root:
        yield Check(
            "users of jails",
            "note",
            "they are the monitor's own user, because it is not root",
            "run the monitor as root, to keep them apart by users too",
        )
    elif others := accounts_in(config.uids):
        yield Check(
            "users of jails",
            "note",
            f"--jail-uids {config.jail_uids} are also those of {', '.join(others)}",
            "give --jail-uids numbers that are nobody else's",
        )
    yield memory(config.simulated, counted)


def memory(simulated: bool, counted: bool | None = None) -> Check:
    """Whether the kernel counts all memory of a jail, for its limit; without that, what is not counted.
    `counted`: what the monitor that runs found, whose group may be another than ours; None: nobody says.
    """
    if cgroups.possible() if counted is None else counted:
        return Check("memory of jails", "ok", "counted by cgroups")
    detail = "no cgroup can be made: only private memory of each process is limited"
    if simulated:
        detail += "; the simulated device's counts for no process, and who takes it is not found out"
    return Check("memory of jails", "note", detail, GROUPS)


def accounts_in(uids: range, subordinate: Path = Path("/etc/subuid")) -> list[str]:
    """Accounts of this machine whose numbers, or those which they may give away (subuid), are among these."""
    found = {account.pw_name for account in pwd.getpwall() if account.pw_uid in uids}
    with contextlib.suppress(OSError):
        for line in subordinate.read_text().splitlines():
            name, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if (
                first.isdecimal()
                and count.isdecimal()
                and _overlap(uids, range(int(first), int(first) + int(count)))
            ):
                found.add(name)
    return sorted(found)


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _reach(environment: dict[str, str]) -> Check:
    name = "reach of the devices"
    status, found = python(_REACH, environment)
    if status:
        return Check(name, "note", f"the driver did not say: {found}", "see `nvidia-smi`")
    if found:
        which = ", ".join(f"GPU {line}" for line in found.split())
        return Check(
            name,
            "note",
            f"kernels on {which} can read and write all memory of their API server (pageableMemoryAccess)",
            "switch heterogeneous memory management off (nvidia-uvm: uvm_disable_hmm=1)",
        )
    return Check(name, "ok", "their own memory only")
