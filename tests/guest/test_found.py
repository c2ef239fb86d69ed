"""However a program looks for the driver, `gpuferry run`, `env` and `sim` have it find one and the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpuferry.guest import launch, paths

DRIVERS = {"guest": paths.guest_library, "simulated": paths.simulated_driver}

# Each leaves the driver in `cuda`, as clients do: CuPy and cuda-bindings by name, Numba by either name,
# Triton by the list of the loader's cache, else by folders, others by ctypes.util.
WAYS = {
    "name": "cuda = ctypes.CDLL('libcuda.so.1')",
    "name without a version": "cuda = ctypes.CDLL('libcuda.so')",
    "find_library": "cuda = ctypes.CDLL(ctypes.util.find_library('cuda'))",
    "ldconfig": """
listed = subprocess.check_output(['ldconfig', '-p'], text=True).splitlines()
(found,) = [line.split()[-1] for line in listed if line.split()[0] == 'libcuda.so.1']
cuda = ctypes.CDLL(found)
""",
    "folders": """
folders = os.environ['LD_LIBRARY_PATH'].split(':')
cuda = ctypes.CDLL(next(path for folder in folders if os.path.exists(path := folder + '/libcuda.so.1')))
""",
}
BEGIN = "import ctypes, ctypes.util, os, subprocess\n"
# The file that has the function; and that no second driver was loaded beside it.
END = """
mapped = {line.split()[-1] for line in open('/proc/self/maps') if line.rstrip().endswith('libcuda.so.1')}
assert ctypes.CDLL('libcuda.so.1').cuInit and len(mapped) == 1, mapped
assert ctypes.addressof(ctypes.c_char.in_dll(cuda, 'cuInit')) == ctypes.addressof(
    ctypes.c_char.in_dll(ctypes.CDLL('libcuda.so.1'), 'cuInit'))
print(*mapped)
"""


def found_by(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code + END],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return os.path.realpath(DRIVERS[request.param]())


def injected(driver: str) -> dict[str, str]:
    return launch.inject(launch.clean_environment(), driver)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_found(driver: str, way: str) -> None:
    assert found_by(WAYS[way], injected(driver)) == driver


@pytest.mark.parametrize(
    "name", ["'libnvidia-ml.so.1'", "'libnvidia-ml.so'", "ctypes.util.find_library('nvidia-ml')"]
)
def test_the_management_library_is_found(driver: str, name: str) -> None:
    code = f"assert ctypes.CDLL({name}).nvmlInit_v2; cuda = ctypes.CDLL('libcuda.so.1')\n"
    assert found_by(code, injected(driver)) == driver


@pytest.mark.parametrize("way", WAYS)
def test_a_child_without_ld_preload(driver: str, way: str) -> None:
    environment = injected(driver)
    del environment["LD_PRELOAD"]
    assert found_by(WAYS[way], environment) == driver


@pytest.mark.parametrize("way", ["name", "name without a version"])
def test_a_child_without_ld_library_path(driver: str, way: str) -> None:
    environment = injected(driver)
    del environment["LD_LIBRARY_PATH"]
    assert found_by(WAYS[way], environment) == driver


@pytest.mark.parametrize("way", ["find_library", "ldconfig"])
def test_an_image_without_tools(driver: str, way: str, tmp_path: Path) -> None:
    """No compiler, linker, objdump nor ldconfig in PATH: as in slim images."""
    for name in ("sh", "uname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    environment = launch.inject(launch.clean_environment() | {"PATH": str(tmp_path)}, driver)
    assert found_by(WAYS[way], environment) == driver


def test_a_program_that_loads_it_apart(driver: str) -> None:
    """glibc's loader comes to no end with filters in another namespace (dlmopen), and libcuda.so is one."""
    code = """
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
assert libc.dlmopen(-1, b'libcuda.so.1', os.RTLD_NOW)
cuda = ctypes.CDLL('libcuda.so.1')
"""
    assert found_by(code, injected(driver)) == driver


VARIABLES = """
#include <dlfcn.h>
#include <stddef.h>
int (*cuInit)(unsigned);
int (*cuDriverGetVersion)(int *);
int version(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int found = -1;
    cuInit = (int (*)(unsigned))dlsym(driver, "cuInit");
    cuDriverGetVersion = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
    return cuDriverGetVersion == NULL || cuDriverGetVersion(&found) != 0 ? -1 : found;
}
"""


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    (folder / "source.c").write_text(source, encoding="utf-8")
    made = folder / name
    subprocess.run(["gcc", "-o", str(made), str(folder / "source.c"), *flags], check=True, timeout=60)
    return made


def test_a_library_with_variables_of_the_same_names(driver: str, tmp_path: Path) -> None:
    """Slang's is one: what is preloaded comes first, so a name there would be bound to the driver's code."""
    library = compiled(tmp_path, "libvariables.so", VARIABLES, "-shared", "-fPIC", "-ldl")
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).version())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=injected(driver), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 12000


def test_a_program_that_leads_to_another_driver(driver: str, tmp_path: Path) -> None:
    """The loader obeys DT_RPATH before any variable: that is said, with what helps."""
    other = compiled(
        tmp_path,
        "libcuda.so.1",
        "int cuInit(unsigned f) { return 42; }",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
    )
    source = "int cuInit(unsigned); int main(void) { return cuInit(0); }"
    rpath = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{tmp_path}"]
    program = compiled(tmp_path, "program", source, str(other), *rpath)
    done = subprocess.run([program], env=injected(driver), capture_output=True, text=True, check=False)
    assert done.returncode == 42
    assert f"another driver, {other}" in done.stderr
    helps = injected(driver) | {"LD_PRELOAD": driver, "GPUFERRY_MONITOR": "unix:/nowhere"}
    done = subprocess.run([program], env=helps, capture_output=True, text=True, check=False)
    assert done.returncode != 42


LINKED = """
int cuDriverGetVersion(int *);
const char *nvmlErrorString(int);
int version(void) {
    int found = 0;
    return cuDriverGetVersion(&found) == 0 && nvmlErrorString(0) != 0 ? found : -1;
}
int main(void) { return version() < 12000; }
"""


def test_it_is_linked_with(driver: str, tmp_path: Path) -> None:
    """By what drivers install for linkers; the loader is then asked for the driver, by its version."""
    flags = [f"-L{Path(driver).parent}", "-lcuda", "-lnvidia-ml", "-Wl,-z,defs"]
    program = compiled(tmp_path, "program", LINKED, *flags)
    assert subprocess.run([program], env=injected(driver), check=False).returncode == 0
    library = compiled(tmp_path, "liblinked.so", LINKED, "-shared", "-fPIC", *flags)
    for made in (program, library):
        needed = made.read_bytes()
        assert b"\0libcuda.so.1\0" in needed
        assert b"\0libnvidia-ml.so.1\0" in needed
    # Behind the driver by its other name.
    code = f"cuda = ctypes.CDLL('libcuda.so'); assert ctypes.CDLL({str(library)!r}).version() > 12000\n"
    environment = injected(driver)
    assert found_by(code, environment) == driver
    del environment["LD_PRELOAD"]
    assert found_by(code, environment) == driver


@pytest.mark.parametrize("theirs", [{}, {"ASAN_OPTIONS": "detect_leaks=0"}])
def test_a_program_with_a_sanitizer(tmp_path: Path, theirs: dict[str, str]) -> None:
    """AddressSanitizer's library refuses to begin behind a preloaded one, unless it is told."""
    program = tmp_path / "sanitized"
    source = '#include <dlfcn.h>\nint main(void) { return dlsym(dlopen("libcuda.so.1", 2), "cuInit") == 0; }'
    built = ["gcc", "-fsanitize=address", "-x", "c", "-", "-o", str(program), "-ldl"]
    if subprocess.run(built, input=source, text=True, capture_output=True, check=False).returncode != 0:
        pytest.skip("no AddressSanitizer here")
    environment = launch.inject(launch.clean_environment() | theirs, paths.simulated_driver())
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(environment[name].startswith(value) for name, value in theirs.items())


def test_the_stand_ins_answer_nothing_else(tmp_path: Path) -> None:
    environment = launch.inject({"PATH": str(tmp_path)}, paths.guest_library())
    for command in (["ld", "-o", "x", "x.o"], ["objdump", "-d", "/bin/sh"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 127
        assert "not installed" in done.stderr
        assert not done.stdout


def test_ldconfig_is_the_systems_own_for_the_rest() -> None:
    environment = launch.inject(launch.clean_environment(), paths.guest_library())
    system = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    if system is None:
        pytest.skip("no ldconfig here")

    def listed(command: str, *words: str) -> list[str]:
        done = subprocess.run([command, *words], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert listed("ldconfig", "--version") == listed(system, "--version")
    theirs = [line for line in listed(system, "-p") if "libcuda.so" not in line and "nvidia-ml" not in line]
    assert [line for line in listed("ldconfig", "-p") if paths.guest_library()[:-13] not in line] == theirs


def test_it_can_be_done_twice_and_undone() -> None:
    before = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/other", "LD_PRELOAD": "libother.so"}
    once = launch.inject(dict(before), paths.simulated_driver())
    twice = launch.inject(launch.inject(dict(before), paths.guest_library()), paths.simulated_driver())
    assert once == twice
    undone = launch.without_driver(dict(once))
    assert {name: undone[name] for name in before} == before


def test_a_client_of_nvidias(tmp_path: Path) -> None:
    """cuda-bindings, in a child that was started without LD_PRELOAD."""
    code = "from cuda.bindings import driver; print(*driver.cuDriverGetVersion())"
    environment = launch.simulating_environment()
    del environment["LD_PRELOAD"]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("0 ") or "CUDA_SUCCESS" in done.stdout, done.stdout
