# mypy: ignore-errors
"""What an attacker does who runs code in an API server: tries everything, and says what it got, as JSON.

Where to look the test writes in. It destroys nothing.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, MS_NOSUID = 0x10000000, 2
TARGETS = json.loads(r"""@TARGETS@""")
# By number: libc has no functions for most of these.
CALLS = {
    "bpf": 321,
    "perf_event_open": 298,
    "io_uring_setup": 425,
    "userfaultfd": 323,
    "keyctl": 250,
    "finit_module": 313,
    "init_module": 175,
    "kexec_load": 246,
    "open_by_handle_at": 304,
    "pivot_root": 155,
    "chroot": 161,
    "setns": 308,
    "swapon": 167,
    "reboot": 169,
    "iopl": 172,
}
EPERM = 1
found = {}


def tries(name):
    def attempt(work):
        try:
            found[name] = f"got {work()}"
        except (OSError, MemoryError, ValueError, RuntimeError, KeyError) as error:
            found[name] = f"denied {(getattr(error, 'errno', None) and os.strerror(error.errno)) or error!r}"

    return attempt


def call(number, *arguments):
    if LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(each) for each in arguments]) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "through"


def in_a_child(code):
    """What must not be done to this process, or would not be seen here."""
    prelude = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
    check = "\nprint('through' if status >= 0 else os.strerror(ctypes.get_errno()))"
    command = [sys.executable, "-ISc", prelude + code + check]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=60, check=False)
    if done.stdout.strip() != "through":  # its status is nobody's to know where SIGCHLD is ignored
        raise RuntimeError(done.stdout + done.stderr)
    return "through"


def look(place):
    path = pathlib.Path(place)
    return len(
        os.listdir(path) if path.is_dir() else path.read_bytes()[:10] if path.is_file() else os.stat(path)
    )


def write(folder):
    with tempfile.TemporaryFile(dir=folder) as file:
        return file.write(b"x")


for place in TARGETS["files"]:
    tries(f"read {place}")(lambda place=place: look(place))
for place in TARGETS["folders"]:
    tries(f"write {place}")(lambda place=place: write(place))


@tries("environment")
def _():
    if "OPERATORS_SECRET" in os.environ:
        return os.environ["OPERATORS_SECRET"]
    everything = b"".join(
        p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/environ") if os.access(p, os.R_OK)
    )
    if b"OPERATORS_SECRET" in everything:
        return "by /proc"
    raise OSError(EPERM, "")


@tries("see processes")
def _():
    others = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if b"compiler" not in (process / "cmdline").read_bytes():  # its own
                others.add(int(process.name))
    others -= {os.getpid()}
    if not others:
        raise OSError(EPERM, "")
    return len(others)


@tries("signal the monitor")
def _():
    return os.kill(TARGETS["monitor"], 0) or "through"


@tries("signal the neighbour")
def _():
    return os.kill(TARGETS["neighbour"], 0) or "through"


@tries("ptrace the monitor")
def _():  # PTRACE_SEIZE: it goes on
    return in_a_child(f"status = libc.ptrace(0x4206, {TARGETS['monitor']}, None, None)")


@tries("read the monitor's memory")
def _():
    maps = pathlib.Path(f"/proc/{TARGETS['monitor']}/maps").read_text()
    with open(f"/proc/{TARGETS['monitor']}/mem", "rb") as memory:
        memory.seek(int(maps.split("-")[0], 16))
        return len(memory.read(8))


for name, family, kind in (
    ("AF_INET", 2, 1),
    ("AF_INET6", 10, 1),
    ("AF_UNIX", 1, 1),
    ("AF_NETLINK", 16, 3),
    ("AF_PACKET", 17, 3),
    ("AF_VSOCK", 40, 1),
):
    tries(f"socket {name}")(
        lambda family=family, kind=kind: socket.socket(family, kind).close() or "a socket"
    )
for place in TARGETS["sockets"]:

    def connect(place=place):
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM if "node" not in place else socket.SOCK_SEQPACKET
        ) as end:
            end.connect("\0" + place[1:] if place.startswith("@") else place)
        return "connected"

    tries(f"connect {place}")(connect)


@tries("connect to the monitor by TCP")
def _():
    host, _, port = TARGETS["tcp"].rpartition(":")
    socket.create_connection((host, int(port)), 2).close()
    return "connected"


@tries("be root")
def _():
    os.setuid(0)
    return os.getuid()


@tries("have capabilities")
def _():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(fields[name], 16)]
    if not held:
        raise OSError(EPERM, "")
    return held


@tries("groups of the monitor")
def _():
    if 0 not in (os.getuid(), os.getgid(), *os.getgroups()):
        raise OSError(EPERM, "")
    return os.getuid()


@tries("mount")
def _():
    place = tempfile.mkdtemp(dir="/tmp").encode()
    if LIBC.mount(b"x", place, b"tmpfs", MS_NOSUID, None):
        raise OSError(ctypes.get_errno(), "")
    LIBC.umount(place)
    return "mounted"


@tries("user namespace")
def _():
    return in_a_child(f"status = libc.unshare({CLONE_NEWUSER})")


for name, number in CALLS.items():
    if TARGETS["jailed"] or name in ("userfaultfd", "chroot"):  # where they succeed they might do harm

        @tries(f"call {name}")
        def _(number=number):
            return call(number, 0, 0, 0, 0, 0)


@tries("raise its limits")
def _():
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY:
        return "none to raise"
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "raised"


@tries("dump core")
def _():
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        raise OSError(EPERM, "")
    return "limit"


@tries("a process outside its group that stays")
def _():
    command = [sys.executable, "-ISc", "import time; time.sleep(1000)", TARGETS["mark"]]
    return subprocess.Popen(command, env={}, start_new_session=True).pid


if TARGETS["jailed"]:

    @tries("a thousand processes")
    def _():
        threading.stack_size(64 << 10)  # a thread is a process to the kernel that counts
        over = threading.Event()
        threads = [threading.Thread(target=over.wait, daemon=True) for _ in range(1000)]
        try:
            for thread in threads:
                thread.start()
        finally:
            over.set()
        return len(threads)

    @tries("much memory")
    def _():
        return len(bytearray(TARGETS["much"]))

    @tries("a large file")
    def _():
        with tempfile.TemporaryFile(dir="/tmp") as file:
            for _ in range(TARGETS["much"] >> 20):
                file.write(bytes(1 << 20))
        return "written"


def leads_to(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # the one that read the folder
        return ""


names = {leads_to(descriptor) for descriptor in os.listdir("/proc/self/fd")}
found["descriptors"] = sorted(name for name in names if name[:1] == "/" and not name.startswith("/memfd"))
os.write(2, ("ESCAPE " + json.dumps(found) + "\n").encode())
