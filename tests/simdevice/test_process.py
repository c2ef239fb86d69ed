"""The driver in a process of its own: settings, fork, exit, cost, and NVIDIA's runtime and bindings on it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import toolchain
from tests.helpers.paths import PROGRAMS, SIM_LIBRARY, SKIP_LIBRARY
from tests.helpers.running import native_environment, run

SETTINGS = ("GPUFERRY_SIM_DEVICES", "GPUFERRY_SIM_MEMORY", "GPUFERRY_SIM_CC", "CUDA_VISIBLE_DEVICES")
PRELUDE = f"""
import ctypes, os, sys
cu = ctypes.CDLL({str(SIM_LIBRARY)!r})
def count():
    n = ctypes.c_int(); r = cu.cuDeviceGetCount(ctypes.byref(n)); return n.value if r == 0 else -r
def uuids():
    out = []
    for i in range(count()):
        b = ctypes.create_string_buffer(16); cu.cuDeviceGetUuid_v2(b, i); out.append(b.raw.hex())
    return out
"""


def python(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**environment, "GPUFERRY_SIM_PYTHON": sys.executable, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def output(code: str, **settings: str) -> str:
    done = python(code, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def uuid(hexadecimal: str) -> str:
    h = hexadecimal
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def test_everything_before_init_is_refused() -> None:
    code = "print(cu.cuDeviceGetCount(None), cu.cuCtxSynchronize(), cu.cuMemFree_v2(0), cu.cuStreamQuery(0))"
    assert output(code) == "3 3 3 3"


def test_driver_version_needs_no_init() -> None:
    code = "v = ctypes.c_int(); print(cu.cuDriverGetVersion(ctypes.byref(v)), v.value)"
    assert output(code) == "0 13050"
    assert output(code, GPUFERRY_SIM_DRIVER_VERSION="12090") == "0 12090"


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("GPUFERRY_SIM_DEVICES", "many", "number of devices"),
        ("GPUFERRY_SIM_DEVICES", "65", "number of devices"),
        ("GPUFERRY_SIM_MEMORY", "8 bananas", "size"),
        ("GPUFERRY_SIM_MEMORY", "-1GiB", "size"),
        ("GPUFERRY_SIM_CC", "eight", "compute capability"),
        ("GPUFERRY_SIM_DRIVER_VERSION", "1", "driver version"),
        ("GPUFERRY_SIM_LOG", "loud", "info or debug"),
        ("GPUFERRY_SIM_DIRTY", "yes", "0 or 1"),
        ("GPUFERRY_SIM_VARIABLES", "anywhere", "image, layout or process"),
        ("GPUFERRY_SIM_PEERS", "2", "0 or 1"),
        ("GPUFERRY_SIM_VARIANCE", "-1", "a seed"),
    ],
)
def test_a_bad_setting_is_named_and_init_fails(name: str, value: str, word: str) -> None:
    done = python("print(cu.cuInit(0), cu.cuInit(0), cu.cuCtxSynchronize())", **{name: value})
    assert done.stdout.strip() == "1 1 3"
    assert f"{name}={value}" in done.stderr
    assert word in done.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 << 20), ("2G", 2 << 30), ("2 gb", 2 << 30), ("1.5GiB", 3 << 29), ("3000000", 3000000)],
)
def test_memory_sizes(text: str, size: int) -> None:
    code = "cu.cuInit(0); n = ctypes.c_size_t(); cu.cuDeviceTotalMem_v2(ctypes.byref(n), 0); print(n.value)"
    assert output(code, GPUFERRY_SIM_MEMORY=text) == str(size)


@pytest.mark.parametrize(("peers", "expected"), [("1", "1 1 0 0"), ("0", "0 0 217 101")])
def test_devices_reach_each_other_or_not(peers: str, expected: str) -> None:
    code = """
cu.cuInit(0); c = ctypes.c_void_p(); cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 1)
other = ctypes.c_void_p(c.value); cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); cu.cuCtxSetCurrent(c)
can = ctypes.c_int(); attribute = ctypes.c_int()
cu.cuDeviceCanAccessPeer(ctypes.byref(can), 0, 1)
cu.cuDeviceGetP2PAttribute(ctypes.byref(attribute), 2, 0, 1)
size = ctypes.c_size_t(2 << 20); at = ctypes.c_uint64(); handle = ctypes.c_uint64()
properties = (ctypes.c_int * 8)(1, 0, 1, 0)
cu.cuMemAddressReserve(ctypes.byref(at), size, size, ctypes.c_uint64(0), ctypes.c_uint64(0))
cu.cuMemCreate(ctypes.byref(handle), size, properties, ctypes.c_uint64(0))
cu.cuMemMap(at, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
assert cu.cuMemSetAccess(at, size, (ctypes.c_int * 3)(1, 0, 3), ctypes.c_size_t(1)) == 0
peer = cu.cuMemSetAccess(at, size, (ctypes.c_int * 3)(1, 1, 3), ctypes.c_size_t(1))
print(can.value, attribute.value, cu.cuCtxEnablePeerAccess(other, 0), peer)
"""
    assert output(code, GPUFERRY_SIM_DEVICES="2", GPUFERRY_SIM_PEERS=peers) == expected


@pytest.mark.parametrize("launches", [0, pytest.param(1, marks=pytest.mark.system)])
def test_files_that_may_not_grow_are_an_error_where_memory_is_one(launches: int, tmp_path: Path) -> None:
    """Under `ulimit -f` the device's own files ended the program: memory, kernels, what NVML shows."""
    kernel = ".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
def out(name, *arguments):
    value = ctypes.c_uint64()
    return getattr(cu, name)(ctypes.byref(value), *arguments), value
print(cu.cuInit(0), out("cuCtxCreate_v2", 0, 0)[0], end=" ")
_, module = out("cuModuleLoadData", b"{kernel}")
_, function = out("cuModuleGetFunction", module, b"k")
for _ in range({launches}):
    assert cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
print(cu.cuCtxSynchronize(), end=" ")
properties = (ctypes.c_int * 8)(1, 0, 1, 0)
print(out("cuMemCreate", ctypes.c_size_t(2 << 20), properties, ctypes.c_uint64(0))[0], end=" ")
properties[1] = 1
print(out("cuMemCreate", ctypes.c_size_t(2 << 20), properties, ctypes.c_uint64(0))[0])
"""
    done = python(code, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, "0 0 0 2 2"), done.stderr
    assert "ulimit -f" in done.stderr


@pytest.mark.parametrize("shareable", [0, 1])
@pytest.mark.parametrize(("dirty", "first"), [("0", "0"), ("1", "165")])
def test_physical_memory_may_begin_dirty(dirty: str, first: str, shareable: int) -> None:
    code = (
        f"shareable = {shareable}"
        + """
cu.cuInit(0); c = ctypes.c_void_p(); cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); cu.cuCtxSetCurrent(c)
size = ctypes.c_size_t(2 << 20); at = ctypes.c_uint64(); handle = ctypes.c_uint64(); byte = ctypes.c_ubyte()
properties = (ctypes.c_int * 8)(1, shareable, 1, 0); access = (ctypes.c_int * 3)(1, 0, 3)
assert cu.cuMemAddressReserve(ctypes.byref(at), size, size, ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
assert cu.cuMemCreate(ctypes.byref(handle), size, properties, ctypes.c_uint64(0)) == 0
assert cu.cuMemMap(at, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
assert cu.cuMemSetAccess(at, size, access, ctypes.c_size_t(1)) == 0
assert cu.cuMemcpyDtoH_v2(ctypes.byref(byte), at, ctypes.c_size_t(1)) == 0
print(byte.value)
"""
    )
    assert output(code, GPUFERRY_SIM_DIRTY=dirty) == first


def test_visible_devices() -> None:
    everything = output("cu.cuInit(0); print(*uuids())", GPUFERRY_SIM_DEVICES="4").split()
    assert len(set(everything)) == 4

    def visible(value: str) -> list[int]:
        code = "r = cu.cuInit(0); print(*(uuids() if r == 0 else [r]))"
        words = output(code, GPUFERRY_SIM_DEVICES="4", CUDA_VISIBLE_DEVICES=value).split()
        return [everything.index(word) if word in everything else -int(word) for word in words]

    assert visible("2,0") == [2, 0]
    assert visible("1,9,2") == [1]
    assert visible("3,-1,2") == [3]
    assert visible("0,x") == [0]
    assert visible("1,1") == visible("0,2,0") == [-100]
    assert visible("0,9,0") == [0]
    assert visible(" 1 , 2") == [1, 2]
    assert visible(f"{uuid(everything[3])},{uuid(everything[1])[:9]}") == [3, 1]
    assert visible("GPU-,1") == [-100]  # names more than one
    for nothing in ("", "-1", "none", "MIG-1"):
        assert visible(nothing) == [-100]
    assert output("print(cu.cuInit(0))", GPUFERRY_SIM_DEVICES="0") == "100"


def test_child_of_an_initialised_process_has_no_driver() -> None:
    code = """
cu.cuInit(0)
context = ctypes.c_void_p(); cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
sys.stdout.flush()
if os.fork() == 0:
    print(cu.cuInit(0), cu.cuCtxSynchronize(), -count(), flush=True)
    os._exit(0)
os.wait()
print(cu.cuCtxSynchronize())
"""
    assert output(code).split("\n") == ["3 3 3", "0"]


def test_child_of_an_uninitialised_process_works() -> None:
    code = """
version = ctypes.c_int(); cu.cuDriverGetVersion(ctypes.byref(version))
if os.fork() == 0:
    print(cu.cuInit(0), count(), flush=True)
    os._exit(0)
os.wait()
print(cu.cuInit(0), count())
"""
    assert output(code).split("\n") == ["0 1", "0 1"]


def test_exit_with_work_under_way() -> None:
    code = """
import atexit
context, stream, word = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
cu.cuInit(0); cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
cu.cuStreamCreate(ctypes.byref(stream), 1); cu.cuMemAlloc_v2(ctypes.byref(word), ctypes.c_size_t(4))
cu.cuStreamWaitValue32_v2(stream, word, 1, 1)
atexit.register(lambda: print(cu.cuStreamQuery(stream), flush=True))
"""
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "600\n", "")


def test_silent_unless_asked() -> None:
    assert python("cu.cuInit(0)").stderr == ""
    noisy = python("cu.cuInit(0)", GPUFERRY_SIM_LOG="info")
    assert "compute capability 8.0" in noisy.stderr
    assert noisy.stdout == ""


def test_what_is_not_supported_is_named() -> None:
    named = python("cu.cuInit(0); cu.cuStreamBeginRecaptureToGraph(None, 0, None, None, None)")
    assert "cuStreamBeginRecaptureToGraph is not supported" in named.stderr
    assert named.stdout == ""


def test_an_idle_process_is_small_and_has_no_threads() -> None:
    code = """
import time
def status():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["RssAnon"].split()[0]), int(fields["Threads"])
before = status()
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
cu.cuInit(0); cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30))
cu.cuMemsetD8_v2(pointer, 0, ctypes.c_size_t(1 << 30)); cu.cuCtxSynchronize()
while status()[1] > 1: time.sleep(0.05)  # its threads end by themselves
print(status()[0] - before[0])
"""
    assert int(output(code)) < 4096  # KiB


RUNTIME = """
#include <cstdio>
__global__ void add(int *a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += i; }
int main() {
    int *a, host[1000], bad = 0;
    cudaMalloc(&a, sizeof host); cudaMemset(a, 0, sizeof host);
    add<<<4, 256>>>(a, 1000); add<<<4, 256>>>(a, 1000);
    cudaError_t e = cudaMemcpy(host, a, sizeof host, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 1000; i++) bad += host[i] != 2 * i;
    printf("%s, %d wrong\\n", cudaGetErrorName(e), bad);
    return bad != 0;
}
"""


@pytest.mark.system
@pytest.mark.some(1)
@pytest.mark.parametrize("shared", [False, True], ids=["static", "shared"])
def test_runtime_of_the_toolkit(tmp_path: Path, shared: bool) -> None:
    source = tmp_path / "runtime.cu"
    source.write_text(RUNTIME)
    program = toolchain.program(source, shared_runtime=shared)
    environment = {**os.environ, "GPUFERRY_SIM_PYTHON": sys.executable}
    done = run([program], {**environment, "LD_PRELOAD": str(SIM_LIBRARY)})
    assert (done.status, done.stdout) == (0, "cudaSuccess, 0 wrong\n"), done.stderr
    if SKIP_LIBRARY.exists():
        done = run([program], {**environment, "LD_PRELOAD": str(SKIP_LIBRARY)})
        assert done.status == 1, "the driver that does nothing passed"


@pytest.mark.system
@pytest.mark.parametrize("name", ["vector_add_driver", "managed_memory", "graph_memory"])
def test_a_program_with_thread_sanitizer(name: str) -> None:
    """It would lay at address 0 what must lie at an address that it does not know."""
    program = toolchain.program(PROGRAMS / f"{name}.c", ["-fsanitize=thread"])
    done = run([program], native_environment())
    assert done.status == 0, done.stderr


def test_cuda_bindings() -> None:
    code = """
from cuda.bindings import driver as d
def ok(result):
    assert result[0] == 0, result
    return result[1] if len(result) == 2 else result[1:]
ok(d.cuInit(0))
device = ok(d.cuDeviceGet(0))
context = ok(d.cuDevicePrimaryCtxRetain(device))
ok(d.cuCtxSetCurrent(context))
pointer = ok(d.cuMemAlloc(1 << 20))
stream = ok(d.cuStreamCreate(0))
ok(d.cuMemsetD32Async(pointer, 0x01020304, 1 << 18, stream))
back = bytearray(1 << 20)
ok(d.cuMemcpyDtoHAsync(back, pointer, 1 << 20, stream))
ok(d.cuStreamSynchronize(stream))
assert back == bytes([4, 3, 2, 1]) * (1 << 18)
start, end = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
ok(d.cuEventRecord(start, stream)); ok(d.cuEventRecord(end, stream)); ok(d.cuEventSynchronize(end))
assert ok(d.cuEventElapsedTime(start, end)) >= 0
kind = ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer))
assert int(kind) == 2
properties = d.CUmemAllocationProp()
properties.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
size = ok(d.cuMemGetAllocationGranularity(properties, d.CUmemAllocationGranularity_flags(0)))
window = ok(d.cuMemAddressReserve(size, 0, 0, 0))
handle = ok(d.cuMemCreate(size, properties, 0))
ok(d.cuMemMap(window, size, 0, handle, 0))
access = d.CUmemAccessDesc()
access.location, access.flags = properties.location, d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(d.cuMemSetAccess(window, size, [access], 1))
ok(d.cuMemcpyDtoD(window, pointer, 1 << 20)); ok(d.cuMemUnmap(window, size)); ok(d.cuMemRelease(handle))
ok(d.cuMemAddressFree(window, size)); ok(d.cuMemFree(pointer)); ok(d.cuDevicePrimaryCtxRelease(device))
print("done")
"""
    assert output(code, LD_LIBRARY_PATH=str(SIM_LIBRARY.parent)) == "done"


LAUNCH = """
ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry empty() { ret; }\\0"
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0 and cu.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cu.cuModuleGetFunction(ctypes.byref(function), module, b"empty") == 0
assert cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
"""


def test_processes_take_turns_on_a_device_if_wanted(tmp_path: Path) -> None:
    rest = "import time; time.sleep(0.3); print(cu.cuStreamQuery(None), flush=True)"
    code = LAUNCH + rest + "; input(); print(cu.cuCtxSynchronize())"
    with (tmp_path / "gpu0").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # another process's kernel runs
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            env={**os.environ, "GPUFERRY_SIM_PYTHON": sys.executable, "GPUFERRY_SIM_TURNS": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline() == "600\n"  # CUDA_ERROR_NOT_READY
        fcntl.flock(other, fcntl.LOCK_UN)
        assert process.communicate("\n", timeout=240)[0] == "0\n"
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it was given back


def test_a_folder_of_turns_must_be_there(tmp_path: Path) -> None:
    assert output("print(cu.cuInit(0))", GPUFERRY_SIM_TURNS=str(tmp_path / "none")) == "1"


@pytest.mark.sanitize
def test_memory_is_freed_later_and_by_nobody_who_waits() -> None:
    source = Path(__file__).parent / "programs" / "later.c"
    program = toolchain.program(source, ["-pthread", "-rdynamic"])
    preload = ":".join(filter(None, [os.environ.get("GPUFERRY_SANITIZER_RUNTIME"), str(SIM_LIBRARY)]))
    done = run([program], {**os.environ, "GPUFERRY_SIM_MEMORY": "2GiB", "LD_PRELOAD": preload})
    assert (done.status, done.stdout) == (0, "freed 302\n"), done.stderr
