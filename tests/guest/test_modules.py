"""Images go over once, and the kernel table that comes back answers everything after."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest
from gpuferry.specs._generated.frames import Kernel, KernelParam

from tests.guest.conftest import Guest
from tests.guest.fake_server import Answer, FakeServer, Frame
from tests.guest.test_versions import OTHER, lacks

TEXT = b".version 8.0 .target sm_80"
UNAVAILABLE, INVALID_PTX, OUT_OF_RESOURCES = 46, 218, 701


def table(*kernels: tuple[str, list[tuple[int, int]]], log: bytes = b"", known: int = 1) -> bytes:
    """A reply to sessionLoadImage: kernels of at most 256 threads and 1000 bytes of dynamic shared memory."""
    rows = b""
    for name, params in kernels:
        attributes = [256, 0, 0, 0, 10, 80, 80, 0, 1000, *[0] * 9]
        rows += Kernel(len(name), len(params), tuple(attributes)).pack()
        rows += b"".join(KernelParam(*param).pack() for param in params)
        rows += name.encode() + bytes(-len(name) % 4)
    return struct.pack("<IIII", known, len(kernels), len(rows), len(log)) + rows + log


KERNELS: tuple[tuple[str, list[tuple[int, int]]], ...] = (
    ("saxpy", [(0, 8), (8, 4), (16, 8)]),
    ("nothing", []),
)
LOAD = f"""
start()
module = made("cuModuleLoadData", {TEXT!r})
"""


def loads(server: FakeServer, *replies: Answer) -> None:
    """Answers image loads with these, one after another, and all else with zeroes."""
    left = list(replies)

    def answer(frame: Frame) -> Answer:
        return left.pop(0) if frame.name == "sessionLoadImage" else Answer()

    server.answer = answer


def test_an_image_goes_over_once(server: FakeServer, guest: Guest) -> None:
    loads(server, *[Answer(body=table(*KERNELS))] * 2)
    outcome = guest(LOAD + 'made("cuModuleLoadData", ' + repr(TEXT) + '); print(stats()["round_trips"])')
    assert outcome.stdout == "1\n", outcome.stderr
    assert server.names == ["sessionImageData", "sessionLoadImage", "sessionLoadImage", "sessionClose"]
    data, load, again, _ = server.frames
    image = TEXT + b"\0"
    assert data.body == hashlib.sha256(image).digest() + struct.pack("<QQ", len(image), 0) + image
    assert load.body[:32] == again.body[:32] == data.body[:32]


def test_an_image_that_the_server_forgot_goes_over_again(server: FakeServer, guest: Guest) -> None:
    """More than once, if the session has moved just then, and again."""
    loads(server, *[Answer(body=table(known=0))] * 3, Answer(body=table(*KERNELS)))
    assert guest(LOAD).status == 0
    assert server.names[:8] == ["sessionImageData", "sessionLoadImage"] * 4


def test_the_table_answers_without_the_server(server: FakeServer, guest: Guest) -> None:
    loads(server, Answer(body=table(*KERNELS)))
    outcome = guest(
        LOAD
        + """
function = made("cuModuleGetFunction", module, b"saxpy")
assert made("cuModuleGetFunction", module, b"saxpy") == function
offset, size, value = u64(), u64(), ctypes.c_int()
for index in range(3):
    ok("cuFuncGetParamInfo", function, index, byref(offset), byref(size))
    print(offset.value, size.value, end=" ")
ok("cuFuncGetAttribute", byref(value), 0, function)
print(cu("cuFuncGetParamInfo", function, 3, byref(offset), byref(size)), value.value)
print(cu("cuModuleGetFunction", byref(size), module, b"sax"), stats()["round_trips"])
"""
    )
    assert outcome.stdout == "0 8 8 4 16 8 1 256\n500 1\n", outcome.stderr
    assert server.names.count("sessionGetFunction") == 1


@pytest.mark.parametrize("cut", [1, 20, 80])
def test_a_table_that_is_cut_short_is_no_table(server: FakeServer, guest: Guest, cut: int) -> None:
    whole = table(*KERNELS)
    head = struct.pack("<IIII", 1, 2, len(whole) - 16 - cut, 0)
    loads(server, Answer(body=head + whole[16:-cut]))
    outcome = guest(f'start(); print(cu("cuModuleLoadData", byref(u64()), {TEXT!r}))')
    assert outcome.stdout == "2\n"
    assert outcome.status == 0


def test_the_compilers_words_reach_the_program(server: FakeServer, guest: Guest) -> None:
    loads(server, Answer(status=INVALID_PTX, body=table(log=b"line 3: no such instruction")))
    outcome = guest(
        f"""
start()
log = ctypes.create_string_buffer(64)
options, values = (u32 * 3)(5, 6, 2), (u64 * 3)(ctypes.addressof(log), 12, 0)
result = cu("cuModuleLoadDataEx", byref(u64()), {TEXT!r}, 3, options, values)
print(result, log.value, values[1], values[2] > 0)
print(cu("cuModuleLoadDataEx", byref(u64()), {TEXT!r}, 1, (u32 * 1)(99), values))
"""
    )
    assert outcome.stdout == f"{INVALID_PTX} b'line 3: no ' 11 True\n1\n"


def test_a_launch_packs_its_parameters(server: FakeServer, guest: Guest) -> None:
    loads(server, Answer(body=table(*KERNELS)))
    outcome = guest(
        LOAD
        + """
function = made("cuModuleGetFunction", module, b"saxpy")
nothing = made("cuModuleGetFunction", module, b"nothing")
values = [u64(0x1111), u32(0x22222222), u64(0x3333)]
params = (u64 * 3)(*[ctypes.addressof(v) for v in values])
def launch(function, grid=1, block=1, shared=0, params=params, extra=None):
    return cu("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, 0, params, extra)
print(launch(function, 3, 256, 1000), launch(nothing, params=None))
print(launch(function, 0), launch(function, 1, 0), launch(function, 1, 257), launch(function, 1, 1, 1001))
print(launch(function, params=None), launch(module), launch(0), launch(12345))
buffer, size = ctypes.create_string_buffer(bytes(range(24)), 24), u64(24)
extra = (u64 * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
print(launch(function, params=None, extra=extra), launch(function, extra=extra))
size.value = 23
print(launch(function, params=None, extra=extra))
size.value = 0
print(launch(function, params=None, extra=extra))
"""
    )
    assert outcome.stdout.splitlines() == ["0 0", "1 1 1 1", "1 400 400 400", "0 1", "0", "1"], outcome.stderr
    first, second, third, part = (frame.body for frame in server.frames if frame.name == "sessionLaunch")
    assert struct.unpack_from("<QQ9I", first)[1:] == (0, 3, 1, 1, 256, 1, 1, 1000, 0, 24)
    assert first[52:] == struct.pack("<QI4xQ", 0x1111, 0x22222222, 0x3333)
    assert second[52:] == b""
    assert third[52:] == bytes(range(24))
    assert part[52:] == bytes(range(23)) + b"\0"


TOLD = 0x100000000000  # where a process has nothing
TO_COPY = """
target = ctypes.create_string_buffer(16)
def copy(address, size=4):
    return cu("cuMemcpyDtoH_v2", target, address, size)
"""
COPY = f"""{TO_COPY}
print(copy({TOLD} + 4), copy({TOLD} + 12, 8), copy({TOLD} + 15))
print(copy({TOLD} + 20), copy(ctypes.addressof(target)))
"""


def tells(frame: Frame) -> Answer:
    """A server that has 16 bytes of code there."""
    if frame.name == "sessionLoadImage":
        return Answer(body=table(*KERNELS))
    if frame.name == "sessionFindMemory":
        (address,) = struct.unpack("<Q", frame.body)
        known = address - TOLD < 16
        return Answer(status=0 if known else 500, body=struct.pack("<QQ", TOLD, 16) if known else None)
    if frame.name == "sessionCopyOut":
        return Answer(body=bytes(struct.unpack("<5Q", frame.body)[3]))
    return Answer()


def test_an_address_that_a_kernel_told_is_asked_about_once(server: FakeServer, guest: Guest) -> None:
    """Until code goes, and never where the program has something itself."""
    server.answer = tells
    again = f"""
source = ctypes.create_string_buffer(16)
print(cu("cuMemcpy", target, {TOLD}, 16), cu("cuMemcpy", target, source, 16))
ok("cuModuleUnload", module)
module = made("cuModuleLoadData", {TEXT!r})
print(copy({TOLD}))
"""
    outcome = guest(LOAD + COPY + again)
    assert outcome.stdout == "0 1 1\n1 1\n0 0\n0\n", outcome.stderr
    asked = [struct.unpack("<Q", f.body)[0] - TOLD for f in server.frames if f.name == "sessionFindMemory"]
    assert asked == [4, 20, 0]


def test_a_failure_before_a_question_is_told_by_what_comes_after(server: FakeServer, guest: Guest) -> None:
    """The question is ours, not the program's."""

    def answer(frame: Frame) -> Answer:
        told = tells(frame)
        return replace(told, latched=OUT_OF_RESOURCES) if frame.name == "sessionFindMemory" else told

    server.answer = answer
    outcome = guest(f"{LOAD}{TO_COPY}print(copy({TOLD}), copy({TOLD}))")
    assert outcome.stdout == f"{OUT_OF_RESOURCES} 0\n", outcome.stderr


def test_a_server_that_dies_in_a_question_is_an_error(server: FakeServer, guest: Guest) -> None:

    def answer(frame: Frame) -> Answer:
        if frame.name == "sessionFindMemory":
            server.hang_up()
            raise EOFError
        return tells(frame)

    server.answer = answer
    assert guest(f"{LOAD}{TO_COPY}print(copy({TOLD}))").stdout == f"{UNAVAILABLE}\n"


def test_nobody_is_asked_before_there_is_code(server: FakeServer, guest: Guest) -> None:
    server.answer = tells
    assert guest("start()" + COPY).stdout == "1 1 1\n1 1\n"
    assert "sessionFindMemory" not in server.names


def test_a_server_that_cannot_say_is_not_asked(server: FakeServer, guest: Guest) -> None:
    server.build, server.agreed, server.answer = OTHER, lacks("sessionFindMemory"), tells
    assert guest(LOAD + COPY).stdout == "1 1 1\n1 1\n"
    assert "sessionFindMemory" not in server.names


def test_a_failure_before_a_load_is_told_by_the_next_wait(server: FakeServer, guest: Guest) -> None:
    """A load waits for nothing of the device: it neither tells of an earlier failure nor forgets it."""
    loads(server, Answer(latched=400, body=table(*KERNELS)), Answer(body=table(*KERNELS)))
    outcome = guest(
        f'start()\nfor _ in range(2): print(cu("cuModuleLoadData", byref(u64()), {TEXT!r}))\n'
        'print(cu("cuCtxSynchronize"), cu("cuCtxSynchronize"))'
    )
    assert outcome.stdout == "0\n0\n400 0\n", outcome.stderr
    names = [name for name in server.names if name != "sessionImageData"]
    assert names == ["sessionLoadImage"] * 2 + ["cuCtxSynchronize"] * 2 + ["sessionClose"]


def test_a_module_that_is_loaded_and_not_given_is_unloaded(server: FakeServer, guest: Guest) -> None:
    """The answer tells that the context has ended: the program is not given what was loaded."""
    loads(server, Answer(latched=700, body=table(*KERNELS)), Answer(body=table(*KERNELS)))
    outcome = guest(f'start()\nfor _ in range(2): print(cu("cuModuleLoadData", byref(u64()), {TEXT!r}))')
    assert outcome.stdout == "700\n700\n", outcome.stderr
    names = [name for name in server.names if name != "sessionImageData"]
    assert names == ["sessionLoadImage", "cuModuleUnload", "sessionClose"]
