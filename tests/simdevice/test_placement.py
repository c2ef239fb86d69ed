"""Addresses of variables and of device functions follow from the image, in whatever process it is loaded."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from .driver import ILLEGAL_ADDRESS, SUCCESS, Driver
from .kernels import function, launch, module, pack
from .test_vmm import MIB2

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def image(number: int) -> bytes:
    """Images that differ, with variables of all kinds and a device function's address in one of them.
    `call` stores what the function that its second argument points to makes of 5."""
    return f"""{HEAD}
.global .align 4 .u32 counter = {number};
.const .align 8 .b8 table[5000];
.global .attribute(.managed) .align 8 .u64 shared_by_all = 7;
.func (.param .b32 result) more(.param .b32 n) {{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [n];
    add.u32 %r2, %r1, {number};
    st.param.b32 [result], %r2;
    ret;
}}
.global .align 8 .u64 operations[1] = {{more}};
.visible .entry call(.param .u64 to, .param .u64 what) {{
    .reg .b32 %r<3>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [what];
    mov.b32 %r1, 5;
    {{
        .param .b32 n; .param .b32 result;
        st.param.b32 [n], %r1;
        shape: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (result), %d2, (n), shape;
        ld.param.b32 %r2, [result];
    }}
    st.global.u32 [%d1], %r2;
    ret;
}}
.visible .entry count() {{
    .reg .b32 %r1;
    .reg .b64 %d1;
    mov.u64 %d1, counter;
    atom.global.add.u32 %r1, [%d1], 1;
    ret;
}}
""".encode()


NAMES = ("counter", "table", "shared_by_all", "operations")


def address(cu: Driver, call: str, owner: int, name: str) -> int:
    return int(cu.out(call, None, owner, name.encode()))


def addresses(cu: Driver, owner: int) -> list[int]:
    return [address(cu, "cuModuleGetGlobal_v2", owner, name) for name in NAMES]


def library(cu: Driver, number: int) -> int:
    return int(cu.out("cuLibraryLoadData", image(number), None, None, 0, None, None, 0))


def word(cu: Driver, pointer: int, size: int = 8) -> int:
    return int.from_bytes(cu.read(pointer, size), "little")


SCRIPT = """
import json, sys
from tests.simdevice.driver import Driver
from tests.simdevice.kernels import module
from tests.simdevice.test_placement import addresses, image, library, word
cu = Driver()
cu.ok("cuInit", 0)
found = {}
with cu.context(device=int(sys.argv[1])):
    modules = {}
    for step in sys.argv[2:]:
        number = int(step[1:])
        if step[0] == "+":
            modules[number] = module(cu, image(number))
        elif step[0] == "L":
            owner = cu.out("cuLibraryGetModule", library(cu, number))
            found[step] = addresses(cu, owner)
        elif step[0] == "-":
            cu.ok("cuModuleUnload", modules.pop(number))
        else:
            found[step] = addresses(cu, modules[number])
            found[step].append(word(cu, found[step][3]))
print(json.dumps(found))
"""


def process(device: int, *steps: str, **settings: str) -> dict[str, list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(device), *steps],
        env={
            **os.environ,
            "GPUFERRY_SIM_DEVICES": "2",
            "GPUFERRY_SIM_PYTHON": sys.executable,
            **settings,
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, list[int]] = json.loads(done.stdout)
    return result


def test_the_same_in_every_process_whatever_else_is_loaded() -> None:
    plain = process(0, "+1", "+2", "+3", "?1", "?2", "?3", "L1", "L4")
    other = process(1, "+7", "+3", "+8", "-7", "+2", "+9", "+1", "-9", "L4", "L1", "?3", "?1", "?2")
    assert plain == other
    everything = [each for found in plain.values() for each in found]
    assert len(set(everything)) == len(everything)


def test_elsewhere_in_each_process() -> None:
    """Variables, as NVIDIA's driver does it. Functions are known by what they are, wherever that is."""
    one, other = (process(0, "+1", "?1", GPUFERRY_SIM_VARIABLES="process")["?1"] for _ in range(2))
    differ = [here != there for here, there in zip(one, other, strict=True)]
    assert differ == [True] * len(NAMES) + [False]


def test_instances_of_an_image_have_numbers(cu: Driver, context: int) -> None:
    first, second, third = (module(cu, image(20)) for _ in range(3))
    places = [addresses(cu, each) for each in (first, second, third)]
    assert len({each for place in places for each in place}) == 12
    cu.write(places[1][0], b"used")
    cu.ok("cuModuleUnload", second)
    again = module(cu, image(20))
    assert addresses(cu, again) == places[1]
    assert word(cu, places[1][0], 4) == 20
    for each in (first, again, third):
        cu.ok("cuModuleUnload", each)
    last = module(cu, image(20))
    assert addresses(cu, last) == places[0]
    cu.ok("cuModuleUnload", last)


def test_a_library_in_two_contexts_and_its_managed_variables(cu: Driver) -> None:
    rounds = []
    for devices in ((0, 1), (1, 0), (0, 0)):
        owner = library(cu, 21)
        found = [address(cu, "cuLibraryGetManaged", owner, "shared_by_all")]
        with cu.context(devices[0]):
            found += addresses(cu, cu.out("cuLibraryGetModule", owner))
            with cu.context(devices[1]):
                found += addresses(cu, cu.out("cuLibraryGetModule", owner))
                assert word(cu, found[0]) == 7
        cu.ok("cuLibraryUnload", owner)
        assert found[0] == found[3] == found[7]
        assert len(set(found)) == 7
        rounds.append(found)
    assert rounds[0] == rounds[1] == rounds[2]


def test_a_place_that_work_still_uses_is_waited_for(cu: Driver, context: int) -> None:
    owner = module(cu, image(22))
    before = addresses(cu, owner)
    gate, stream, other = cu.alloc(4), cu.stream(), cu.stream()
    cu.ok("cuMemsetD32_v2", gate, 0, 1)
    cu.ok("cuStreamWaitValue32_v2", stream, gate, 1, 0)
    assert launch(cu, function(cu, owner, "count"), pack(), stream=stream) == SUCCESS
    cu.ok("cuModuleUnload", owner)
    again: list[int] = []

    def load() -> None:
        cu.ok("cuCtxSetCurrent", context)
        again.append(module(cu, image(22)))

    loader = threading.Thread(target=load)
    loader.start()
    loader.join(0.2)
    assert loader.is_alive()
    cu.ok("cuStreamWriteValue32_v2", other, gate, 1, 0)
    loader.join(60)
    assert addresses(cu, again[0]) == before
    assert word(cu, before[0], 4) == 22  # not what the kernel counted
    cu.ok("cuModuleUnload", again[0])
    cu.free(gate)


def test_a_place_that_is_taken(cu: Driver, context: int) -> None:
    owner = module(cu, image(23))
    before = addresses(cu, owner)
    cu.ok("cuModuleUnload", owner)
    wanted = before[0] & -MIB2
    assert cu.out("cuMemAddressReserve", MIB2, 0, wanted, 0) == wanted
    owner = module(cu, image(23))
    elsewhere = addresses(cu, owner)
    assert not any(wanted <= each < wanted + MIB2 for each in elsewhere)
    assert word(cu, elsewhere[0], 4) == 23
    cu.ok("cuModuleUnload", owner)
    cu.ok("cuMemAddressFree", wanted, MIB2)
    owner = module(cu, image(23))
    assert addresses(cu, owner) == before
    cu.ok("cuModuleUnload", owner)


def test_memory_of_variables_is_charged_and_given_back(cu: Driver, context: int) -> None:
    before = cu.used()
    owner = module(cu, image(24))
    assert cu.used() == before + 5 * 4096
    table = address(cu, "cuModuleGetGlobal_v2", owner, "table")
    assert cu.out("cuPointerGetAttribute", 2, table, type=ctypes.c_int) == 2  # device memory
    cu.ok("cuModuleUnload", owner)
    assert cu.used() == before
    assert cu.status("cuMemsetD8_v2", table, 0, 1) != SUCCESS


def test_pointers_to_functions(cu: Driver) -> None:
    with cu.context():
        modules = [module(cu, image(number)) for number in (25, 26)]
        calls = [function(cu, each, "call") for each in modules]
        tables = [word(cu, address(cu, "cuModuleGetGlobal_v2", each, "operations")) for each in modules]
        assert tables[0] != tables[1]
        out = cu.alloc(4)
        for call, pointer, number in zip(calls, tables, (25, 26), strict=True):
            assert launch(cu, call, pack(out, pointer)) == SUCCESS
            assert word(cu, out, 4) == 5 + number
    for number in range(5):  # each of them ends all contexts
        with cu.context():
            others = word(cu, address(cu, "cuModuleGetGlobal_v2", module(cu, image(26)), "operations"))
            with cu.context():
                loaded = module(cu, image(25))
                table = word(cu, address(cu, "cuModuleGetGlobal_v2", loaded, "operations"))
                out = cu.alloc(4)
                pointer = (others, table + 16, table + 1, 0, out)[number]
                arguments = pack(out, ctypes.c_uint64(pointer))
                assert launch(cu, function(cu, loaded, "call"), arguments) == SUCCESS
                assert cu.status("cuCtxSynchronize") == ILLEGAL_ADDRESS


def test_ten_thousand_modules_of_one_image(cu: Driver, context: int) -> None:
    """Each has its number at once, and they go at once: it took time in the cube of how many there are."""
    count = 10_000
    modules = [cu.out("cuModuleLoadData", image(77)) for _ in range(count)]

    def place(number: int) -> int:
        return address(cu, "cuModuleGetGlobal_v2", modules[number], "counter")

    places = [place(number) for number in range(count)]
    assert len(set(places)) == count
    for number in (count // 2, 7):
        cu.ok("cuModuleUnload", modules[number])
        modules[number] = cu.out("cuModuleLoadData", image(77))
        assert place(number) == places[number]  # the lowest number that is free
