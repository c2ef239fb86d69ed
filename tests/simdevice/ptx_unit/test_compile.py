"""Objects: that they are what kernel_abi.h promises. What the code computes is tested in tests/ptx."""

from __future__ import annotations

import re
import struct

import pytest
from gpuferry.native.simdevice.ptx import compile_kernel, link, parse
from gpuferry.native.simdevice.ptx.compiler import kernel_ir
from gpuferry.native.simdevice.ptx.kernel import KernelContext

from .sources import HEADER, SAXPY, kernel

RUN_BLOCK, RUN_THREAD, RUN_WARP = (f"sim_kernel_run_{unit}" for unit in ("block", "thread", "warp"))


def symbols(image: bytes) -> dict[str, bool]:
    """The names in an ELF object's symbol table, and whether each is defined."""
    assert image[:5] == b"\x7fELF\x02"
    (offset,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + size * index) for index in range(count)]
    found: dict[str, bool] = {}
    for header in headers:
        if header[1] != 2:  # SHT_SYMTAB
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", image, at)
            text = image[strings + name : image.index(b"\0", strings + name)].decode()
            found[text] = section != 0
    return found


def compiled(text: str, name: str = "k") -> dict[str, bool]:
    return symbols(compile_kernel(parse(text), name))


def ir(text: str, name: str = "k") -> str:
    module = parse(text)
    return kernel_ir(KernelContext(module, module.kernel(name)))


def unit(text: str) -> str:
    """What runs on a fiber of its own, "warp" or "thread"; "block": the threads are a loop."""
    found = compiled(text)
    (entry,) = [name for name in (RUN_BLOCK, RUN_THREAD, RUN_WARP) if found.get(name)]
    return entry.rpartition("_")[2]


def test_an_object_defines_what_the_engine_looks_for() -> None:
    found = compiled(SAXPY, "saxpy")
    assert all(found[name] for name in ("sim_kernel_abi", "sim_kernel_form", RUN_BLOCK))
    assert RUN_THREAD not in found


def local(body: str, functions: str = "") -> int:
    """Bytes of a lane's local memory that a kernel takes where addresses are checked."""
    module = parse(f"{HEADER}{functions}.visible .entry k()\n{{\n{body}\n    ret;\n}}\n")
    context = KernelContext(module, module.kernel("k"), checked=True)
    found = re.search(r"@sim_kernel_local = constant i32 (\d+)", kernel_ir(context))
    assert found
    return int(found[1])


def test_local_memory_is_known_unless_a_function_calls_itself() -> None:
    array = ".local .align 4 .b8 own[400]; .reg .b64 %x;\n mov.u64 %x, own; st.local.u32 [%x], 1;"
    once = f".func one()\n{{\n{array}\n    ret;\n}}\n"
    deep = ".func deep()\n{\n    call deep;\n    ret;\n}\n"
    taken = ".reg .b64 %x; alloca.u64 %x, 64; st.local.u32 [%x], 1;"
    assert local("") == 0
    assert 400 <= local(array) < 500
    assert 800 <= local(array + "\n    call one;\n    call one;", once) < 1000
    assert local("call deep;", deep) >= 16 << 10
    assert local(taken) >= 16 << 10


def test_a_cpu_by_name() -> None:
    assert compile_kernel(parse(SAXPY), "saxpy", "x86-64")[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    "body",
    [
        "bar.sync 0;",
        "barrier.sync.aligned 1, 64;",
        "bar.red.popc.u32 %r1, 0, %p1;",
        "bar.warp.sync -1;",
        "shfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;",
        "vote.sync.ballot.b32 %r1, %p1, -1;",
        "match.any.sync.b32 %r1, %r2, -1;",
        "redux.sync.add.s32 %r1, %r2, -1;",
        "activemask.b32 %r1;",
        "LOOP: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra LOOP;",
        "LOOP: atom.global.cas.b32 %r1, [%d1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOOP;",
    ],
)
def test_threads_that_may_wait_run_as_warps(body: str) -> None:
    assert unit(kernel(body)) == "warp"


def test_lanes_that_wait_for_each_other_in_different_places_are_threads() -> None:
    body = "setp.eq.u32 %p1, %r1, 0; @%p1 bra A; bar.warp.sync -1; bra B; A: bar.warp.sync -1; B: ret;"
    assert unit(kernel("mov.u32 %r1, %tid.x;" + body)) == "thread"
    assert unit(kernel("mov.u32 %r1, %ctaid.x;" + body)) == "warp"


@pytest.mark.parametrize(
    "body",
    [
        "LOOP: red.global.add.u32 [%d1], 1; sub.u32 %r2, 7, %r2; setp.ne.u32 %p1, %r2, 0; @%p1 bra LOOP;",
        "L: atom.global.add.u32 %r1, [%d1], 1; sub.u32 %r2, 7, %r2; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;",
        "ld.volatile.global.u32 %r1, [%d1];",
        "membar.gl;",
    ],
)
def test_threads_that_never_wait_are_a_loop(body: str) -> None:
    assert unit(kernel(body)) == "block"


# As compilers write it that do not optimise.
IN_LOCAL_MEMORY = """
    .local .align 4 .b8 own[8];
    .reg .b64 %SP, %SPL;
    mov.b64 %SPL, own;
    cvta.local.u64 %SP, %SPL;
    LOOP: ld.acquire.gpu.global.u32 %r1, [%d1];
    st.u32 [%SP+4], %r1;
    add.u64 %d2, %SP, 4;
    ld.u32 %r2, [%d2];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra LOOP;
"""


@pytest.mark.parametrize(
    "body",
    [
        "LOOP: ld.acquire.gpu.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra LOOP;",
        "LOOP: ld.acquire.gpu.global.u32 %r1, [%d1]; T: .branchtargets LOOP, OUT; brx.idx %r1, T; OUT:",
        "LOOP: ld.acquire.gpu.global.u32 %r1, [%d1]; T: .branchtargets ON, OUT; brx.idx %r1, T;"
        "ON: bra LOOP; OUT:",
        "LOOP: ld.acquire.gpu.global.u32 %r1, [%d1]; setp.ne.u32 %p1, %r1, 0; @%p1 mov.u32 %r2, 1;"
        "setp.eq.u32 %p2, %r2, 0; @%p2 bra LOOP;",
        IN_LOCAL_MEMORY,
    ],
)
def test_a_waiting_loop_yields(body: str) -> None:
    assert "sim_rt_yield" in compiled(kernel(body))


def test_exit_in_a_function_needs_warps() -> None:
    assert unit(kernel("call f;", head=".func f() { exit; }")) == "warp"


def test_names_of_nested_scopes_stay_apart() -> None:
    body = """
    mov.u32 %r1, 1;
    { .reg .b32 %r1; .reg .pred q; mov.u32 %r1, 2; setp.eq.u32 q, %r1, 2; @q bra L; L: }
    { .reg .pred q; setp.eq.u32 q, %r1, 1; @q bra L; L: }
    """
    assert "store i32 2, ptr %r1.r1" in ir(kernel(body))


def test_functions_nobody_calls_are_not_compiled() -> None:
    head = ".func broken() { nonsense.u32 %r1; }\n.func fine() { ret; }"
    assert compiled(kernel("call fine;", head=head))[RUN_BLOCK]


@pytest.mark.parametrize("directives", ["", ".noreturn", ".abi_preserve 8 .abi_preserve_control 2"])
def test_an_indirect_call_reaches_functions_that_fit(directives: str) -> None:
    head = """
    .func (.param .b32 r) one (.param .b32 x) { st.param.b32 [r], 1; ret; }
    .func (.param .b32 r) two (.param .b32 x) { st.param.b32 [r], 2; ret; }
    .func other (.param .b64 x) { ret; }
    .global .u64 table[3] = {one, two, other};
    """
    body = f"""
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _) {directives};
    call (b), %d1, (a), proto;
    ld.param.b32 %r2, [b]; }}
    """
    text = ir(kernel(body, head=head))
    assert text.count("define internal void @f") == 2


def test_parameters_in_registers_and_in_memory() -> None:
    head = """
    .func (.reg .b32 r) add3 (.reg .b32 x, .param .align 8 .b8 s[16], .reg .f64 z)
    { .reg .b32 t; ld.param.b32 t, [s+8]; add.u32 r, x, t; ret; }
    """
    body = "{ .param .align 8 .b8 s[16]; st.param.b32 [s+8], %r1; call (%r2), add3, (5, s, %e1); }"
    assert compiled(kernel(body, head=head))[RUN_BLOCK]


def test_linked_modules() -> None:
    main = kernel(
        "call helper; ld.global.u32 %r1, [counter];",
        head=".extern .func helper();\n.extern .global .u32 counter;",
    )
    other = f"{HEADER}.func private() {{ ret; }}\n.visible .global .u32 counter = 5;\n"
    other += ".visible .func helper() { call private; ret; }"
    third = f"{HEADER}.func private() {{ trap; }}\n.visible .entry k2() {{ call private; ret; }}"
    module = link([parse(main), parse(other), parse(third)])
    assert [each.name for each in module.kernels] == ["k", "k2"]
    assert [each.initial for each in module.variables] == [b"\5\0\0\0"]
    assert "sim_rt_trap" not in symbols(compile_kernel(module, "k"))
    assert "sim_rt_trap" in symbols(compile_kernel(module, "k2"))


def test_shared_addresses_wrap_at_32_bits() -> None:
    """nvcc forms negative shared addresses that an immediate offset brings back."""
    text = ir(kernel("ld.shared.u32 %r1, [%r2+508];", head=".shared .align 4 .b8 s[512];"))
    assert re.search(r"add i32 %t\d+, 508\n.*zext i32", text)
