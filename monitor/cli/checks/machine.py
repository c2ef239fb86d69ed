"""This machine: folders, what an earlier monitor left, the GPU's driver, the simulated device."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuferry.guest import launch, paths
from gpuferry.guest.endpoint import runtime_directory
from gpuferry.guest.paths import LibraryMissing
from gpuferry.guest.units import format_size
from gpuferry.specs._generated import wire

from ...devices import choice
from ...settings.errors import ConfigError
from ...settings.folders import state_directory
from ...settings.monitor_options import MonitorOptions
from ...settings.sources import load
from .. import reach
from .check import Check, python
from .keeping import clock, disk, with_room
from .permissions import replaceable_by_others

OLDEST_DRIVER = (12, 8)
ROOM_WANTED = 256 << 20  # bytes free for compiled kernels
SUN_PATH_MOST = 107
LONGEST_NAME = "/session.sock"
SET_BY = "GPUFERRY_SIM_"  # begins the variables of the simulated device

# What the driver's own words leave out.
_DRIVER_ERRORS = {
    3: "this process may not use it, or a container hides the devices",
    100: "the driver finds no device: is it passed into this container or VM?",
    802: "the system is not ready: on NVSwitch machines nvidia-fabricmanager must run",
    803: "library and kernel module of the driver differ: reboot after the update, or reload the module",
    999: "it failed without a reason: see `dmesg`",
}


# -- libraries

# The property that matters: a program that loads the driver by its SONAME gets the preloaded file.
_SONAME = """
import ctypes, sys
ctypes.CDLL("libcuda.so.1").cuInit
if not any(line.rstrip().endswith(LIBRARY) for line in open("/proc/self/maps")):
    sys.exit("libcuda.so.1 resolved to another file")
"""


def _library(name: str, find: Callable[[], str]) -> Check:
    try:
        path = find()
    except LibraryMissing as error:
        return Check(name, "failed", str(error), "`make build`, or install a wheel")
    code = f"LIBRARY = {os.path.realpath(path)!r}" + _SONAME
    status, output = python(code, launch.preload(launch.clean_environment(), path))
    if status:
        return Check(name, "failed", f"{path}: {output}", "build it again: `make build`")
    return Check(name, "ok", path)


def guest_library() -> Check:
    """Check that the guest library loads, and speaks what the rest of this installation speaks."""
    check = _library("guest library", paths.guest_library)
    if check.result == "ok" and wire.SPEC_HASH not in Path(check.detail).read_bytes():
        detail = f"{check.detail} was built from another spec than this gpuferry: servers will refuse it"
        return Check("guest library", "failed", detail, "build or install both together: `make build`")
    return check


# -- folders and what is left in them


def monitor_runs() -> bool:
    """Whether a monitor of this user holds the runtime folder."""
    return runs_in(Path(runtime_directory()))


def runs_in(folder: Path) -> bool:
    """Whether a daemon holds this runtime folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def runtime_folder() -> Iterator[Check]:
    """Check that the runtime folder is private, writable, short enough for sockets, and without remains."""
    name, path = "runtime folder", Path(runtime_directory())
    other = "or set GPUFERRY_RUNTIME_DIR to another folder"
    if len(os.fsencode(str(path) + LONGEST_NAME)) > SUN_PATH_MOST:
        yield Check(name, "failed", f"{path}: too long a name for a Unix socket", f"shorten it, {other}")
        return
    try:
        status = path.lstat()
    except FileNotFoundError:
        parent = next(folder for folder in path.parents if folder.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Check(name, "ok", f"{path} will be made by the first monitor")
        else:
            yield Check(name, "failed", f"{path} cannot be made: {parent} is not writable", other[3:])
        return
    except OSError as error:
        yield Check(name, "failed", f"{path}: {error.strerror}", other[3:])
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        yield Check(name, "failed", f"{path} is not a folder of yours", f"remove it, {other}")
    elif status.st_mode & 0o077:
        detail = f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: others could read the token"
        yield Check(name, "failed", detail, f"`chmod 700 {path}`, {other}")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Check(name, "failed", f"{path} is not writable", f"`chmod 700 {path}`, {other}")
    else:
        yield replaceable_by_others(name, path) or with_room(name, path, other)
        yield from _stale(path)


def state_folder() -> Iterator[Check]:
    """Check that the state folder can be written, and lasts: tokens, limits, usage and suspended sessions are
    there.
    """
    name, other = "state folder", "or name another with --state"
    try:
        path = state_directory(load(MonitorOptions, "monitor").values.state)
    except ConfigError as error:
        yield Check(name, "failed", str(error), error.hint or "see `gpuferry config show monitor`")
        return
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        detail = f"{there} is no folder that can be written"
        yield Check(name, "failed", detail, f"make it this user's (`chown`), {other}")
        return
    yield with_room(name, there, other) if there == path else Check(name, "ok", f"{path} will be made")
    yield from disk(there)
    yield from clock(path)


def _stale(path: Path) -> Iterator[Check]:
    if monitor_runs():
        return
    left = [entry.name for entry in sorted(path.iterdir()) if entry.is_socket() and not _answers(entry)]
    owner = reach.published(str(path)).get("GPUFERRY_MONITOR_PID")
    if owner:
        left.append("endpoint")
    if left:
        who = f"monitor {owner}, which is gone" if owner else "a monitor that is gone"
        step = "harmless: the next `gpuferry monitor` replaces them, and adopts sessions that still run"
        yield Check("stale files", "note", f"left in {path} by {who}: {', '.join(left)}", step)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


# -- the real GPU

_VERSION = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
version = ctypes.c_int()
print(driver.cuInit(0), driver.cuDriverGetVersion(ctypes.byref(version)), version.value)
"""


def gpu() -> Check:
    """Check that there is a GPU, and that its driver is new enough."""
    status, output = python(_VERSION, choice.server_environment(simulated=False))
    if status:
        step = "fine for guests; a monitor offers the simulated device"
        return Check("GPU", "note", f"none here: {output}", step)
    initialised, _, version = map(int, output.split())
    number = (version // 1000, version % 1000 // 10)
    newest = f"the driver supports CUDA {number[0]}.{number[1]}"
    if number < OLDEST_DRIVER:
        oldest = ".".join(map(str, OLDEST_DRIVER))
        return Check(
            "GPU", "failed", f"{newest}: {oldest} is the oldest", "install NVIDIA driver 570 or newer"
        )
    if initialised:
        reason = _DRIVER_ERRORS.get(initialised, "see `nvidia-smi`")
        return Check("GPU", "note", f"{newest}, but answers with error {initialised}", reason)
    count, reason = choice.probe(simulated=False)
    if not count:
        return Check("GPU", "note", f"{newest}, but: {reason}", "see `nvidia-smi`")
    return Check("GPU", "ok", f"{count} found; {newest}")


# -- the simulated device

# One kernel, new each time: it goes through the compile service and into the disk cache.
_KERNEL = """
import ctypes, os
cu = ctypes.CDLL("libcuda.so.1")
def must(status, what):
    if status: raise SystemExit(f"{what} answered with error {status}")
marker = int.from_bytes(os.urandom(3), "little")
ptx = f'''.version 8.0
.target sm_80
.address_size 64
.visible .entry probe(.param .u64 out) {{
    .reg .u64 %rd<2>; .reg .u32 %r<2>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, {marker}; st.global.u32 [%rd1], %r1; ret;
}}'''.encode()
context, module, kernel, memory = (ctypes.c_void_p() for _ in range(4))
value = ctypes.c_uint()
must(cu.cuInit(0), "cuInit")
must(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent")
must(cu.cuModuleLoadData(ctypes.byref(module), ptx), "cuModuleLoadData")
must(cu.cuModuleGetFunction(ctypes.byref(kernel), module, b"probe"), "cuModuleGetFunction")
must(cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4)), "cuMemAlloc")
arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
must(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None), "cuLaunchKernel")
must(cu.cuMemcpyDtoH_v2(ctypes.byref(value), memory, ctypes.c_size_t(4)), "cuMemcpyDtoH")
if value.value != marker: raise SystemExit("the kernel wrote something else than it should")
"""


def simulated_device() -> Iterator[Check]:
    """Check that the simulated device answers, compiles and runs a kernel, and can keep what it compiled."""
    yield _library("simulated driver", paths.simulated_driver)
    try:
        count, reason = choice.probe(simulated=True)
    except LibraryMissing as error:
        count, reason = 0, str(error)
    if not count:
        step = "unset it, or give it such a value" if SET_BY in reason else "`make build`, or install a wheel"
        yield Check("simulated device", "failed", reason, step)
        return
    yield Check("simulated device", "ok", f"{count} answering")
    yield _compiler()
    yield _cache()


def _compiler() -> Check:
    name = "compiler of the simulated device"
    interpreter = os.environ.get("GPUFERRY_SIM_PYTHON", sys.executable)
    code = "import llvmlite, gpuferry.native; print(llvmlite.__version__)"
    status, version = python(code, launch.clean_environment(), interpreter)
    if status:
        hint = "`pip install 'gpuferry[sim]'`, or point GPUFERRY_SIM_PYTHON at a Python that has it"
        serves = importlib.util.find_spec("uvloop")  # which a monitor needs
        result = "failed" if serves else "note"
        return Check(
            name, result, f"{interpreter}: {version}", hint if serves else f"fine for guests; else {hint}"
        )
    status, output = python(_KERNEL, launch.simulated_environment())
    if status:
        return Check(name, "failed", f"a kernel does not run: {output}", "GPUFERRY_SIM_LOG=debug says more")
    return Check(name, "ok", f"{interpreter}, llvmlite {version}; compiled and ran a kernel")


def _cache_folders() -> Iterator[Path]:
    """Where the simulated driver keeps compiled kernels: the first of these that is private and writable."""
    variables = (
        ("GPUFERRY_SIM_CACHE", ""),
        ("XDG_CACHE_HOME", "gpuferry/ptx"),
        ("HOME", ".cache/gpuferry/ptx"),
    )
    for variable, rest in variables:
        if os.environ.get(variable, "").startswith("/"):
            yield Path(os.environ[variable], rest)
    yield Path(f"/tmp/gpuferry-ptx-{os.geteuid()}")


def _usable(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return stat.S_ISDIR(status.st_mode) and private and os.access(folder, os.W_OK)


def _sizes(folder: Path) -> Iterator[int]:
    """Of its files. Programs write there all the time: one may get another name while it is looked at."""
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file():
                yield entry.stat().st_size


def _cache() -> Check:
    name, folders = "cache of compiled kernels", list(_cache_folders())
    chosen = next((folder for folder in folders if _usable(folder)), None)
    if not chosen:
        detail = f"{folders[0]}: not there, not writable, or not private: each start compiles again"
        return Check(name, "note", detail, f"`mkdir -p -m 700 {folders[0]}`")
    entries = list(_sizes(chosen))
    detail = f"{chosen}, {len(entries)} files, {format_size(sum(entries))}"
    if chosen != folders[0]:
        return Check(name, "note", f"{detail}; {folders[0]} is not usable", f"`chmod 700 {folders[0]}`")
    free = shutil.disk_usage(chosen).free
    if free < ROOM_WANTED:
        return Check(name, "note", f"{detail}, but only {format_size(free)} free", "make room on that disk")
    return Check(name, "ok", detail)


def offer() -> Check:
    """Say what a monitor would offer here."""
    try:
        machine = choice.choose(load(MonitorOptions, "monitor").values.device)
    except ConfigError as error:
        step = error.hint or "see `gpuferry config show monitor`"
        return Check("what a monitor would offer", "failed", str(error), step)
    kind = "simulated" if machine.simulated else "real"
    divided = f": {', '.join(machine.names)}" if machine.names else ""
    return Check("what a monitor would offer", "ok", f"{machine.devices} {kind}{divided}")
