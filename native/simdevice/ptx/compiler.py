"""Compiles one kernel: PTX to LLVM IR to an object file."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

import llvmlite.binding as llvm

from . import emit  # noqa: F401  (registers the instruction handlers)
from .analysis import Program
from .contract import contract
from .emit.layout import BLOCK, THREAD, THREAD_SIZE
from .emit.registry import handler_of
from .errors import PtxError
from .frames import STACK, with_stack
from .inline import inlined
from .kernel import KernelContext
from .module import Module
from .warp import Shape, kernel_functions
from .warp.record import Recorder

KERNEL_ABI = 13
LOOP, THREADS, WARPS = range(3)  # enum sim_kernel_form
DUMP = "GPUFERRY_SIM_DUMP"
UNIT = "GPUFERRY_SIM_UNIT"  # for tests: every kernel in warps, or none
# Instructions and declarations beyond which optimising takes longer than a first launch should.
_PROMPT = {LOOP: 120, THREADS: 120, WARPS: 16}
# Registers times blocks of LLVM IR, beyond which registers of an interleaved kernel stay in memory: as values
# they would meet in each block. CUTLASS's Stream-K was 72 MB of code made in 12 s, and is 0.8 MB made in 1 s.
# Without optimisation each meeting is code and a place on the stack, so there they always stay: a warp of
# NVIDIA's simpleAWBarrier took 13 MB of stack, and takes 0.1 MB.
_MEETINGS = 1_000_000


def kernel_ir(kernel: KernelContext) -> str:
    """The LLVM module of one kernel, as text. A kernel that is small is not `quick` any longer."""
    records, functions = _recorded(kernel)
    rewritten = {index: contract(record.items, record) for index, record in records.items()}
    if any(items is not None for items in rewritten.values()):
        kernel.program = Program(kernel.module, kernel.kernel, rewritten)
        records, functions = _recorded(kernel)
    if (bodies := inlined(kernel.program)) is not None:
        kernel.program = Program(kernel.module, kernel.kernel, {**rewritten, **bodies})
        records, functions = _recorded(kernel)
    form, entry, rows = LOOP, [_RUN_BLOCK], Shape.ANY
    items = sum(len(record.items) for record in records.values())
    unit = os.environ.get(UNIT, "")
    if kernel.program.uses_fibers:
        form, entry = THREADS, [_RUN_THREAD]
    needed = kernel.program.uses_fibers or kernel.program.exchanges
    quick = kernel.quick
    if unit == "warp" or (needed and unit != "thread"):
        kernel.quick = quick and items > _PROMPT[WARPS]
        warps = kernel_functions(kernel, records)
        if warps is not None:
            form, functions, entry = WARPS, warps, []
        for shape in (Shape.LINES, Shape.ROWS) if form == THREADS and unit != "thread" else ():
            if (warps := kernel_functions(kernel, records, shape)) is not None:
                functions, rows = functions + warps, shape
                break
    kernel.quick = quick and items > _PROMPT[form]
    kernel.interleaved &= form == WARPS or rows is not Shape.ANY
    declarations = [f"declare {text}" for text in kernel.declared.values()]
    return "\n".join(
        [
            f'target triple = "{llvm.get_process_triple()}"',
            f"@sim_kernel_abi = constant i32 {KERNEL_ABI}",
            f"@sim_kernel_form = constant i32 {form}",
            f"@sim_kernel_rows = constant i32 {int(rows)}",
            f"@sim_kernel_quick = constant i32 {int(kernel.quick)}",
            f"@sim_kernel_local = constant i32 {kernel.local_bytes}",
            f"@{STACK} = constant i32 0",
            *declarations,
            *functions,
            *entry,
            '!0 = !{}\n!1 = !{!"branch_weights", i32 1, i32 100000}\n',
        ]
    )


def _recorded(kernel: KernelContext) -> tuple[dict[int, Recorder], list[str]]:
    """The kernel's functions for one thread, and what was found out meanwhile."""
    records = {
        index: Recorder(kernel, body.function, body.items, kernel.program.yields[index], handler_of)
        for index, body in kernel.program.bodies.items()
    }
    return records, [record.text() for record in records.values()]


def compile_kernel(
    module: Module, name: str, cpu: str | None = None, checked: bool = False, quick: bool = False
) -> bytes:
    """The kernel as an x86-64 object (kernel_abi.h). `cpu` is an LLVM name; None: this machine's. `checked`:
    it is held to device memory and its own. `quick`: code that is slower, if optimising takes long.
    """
    try:
        context = KernelContext(module, module.kernel(name), checked)
        context.gathers = cpu is None and bool(llvm.get_host_cpu_features().get("avx512f"))
        context.quick = quick
        text = kernel_ir(context)
    except PtxError as error:
        raise error if error.kernel else PtxError(name, error.line, "", error.reason) from None
    _dump(name, module, text)
    machine = _machine(cpu, not context.quick)
    meetings = text.count(" = alloca ") * len(_BLOCK.findall(text))
    stay = context.interleaved and (context.quick or meetings > _MEETINGS)
    try:
        parsed = llvm.parse_assembly(text, llvm.create_context())
        parsed.verify()
    except RuntimeError as error:
        # Operands that each look right but do not fit together: LLVM names the place in its own text only.
        raise PtxError(name, 0, str(error).strip()[:400], "the kernel is inconsistent") from None
    if context.quick or stay:
        _simplify(parsed, machine, context.quick, stay)
    else:
        _optimise(parsed, machine)
    return with_stack(bytes(machine.emit_object(parsed)), context.program.is_recursive)


def _optimise(parsed: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)


def _simplify(
    parsed: llvm.ModuleRef, machine: llvm.TargetMachine, quick: bool = True, stay: bool = False
) -> None:
    """Registers become values, unless they `stay` in memory; no more than that if it is to be `quick`. It
    takes a time that is a power of the number of blocks, most of which can be joined before.
    """
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_simplify_cfg_pass()
    if not stay:
        passes.add_sroa_pass()
    if not quick:
        passes.add_instruction_combine_pass()
    passes.run(parsed, builder)


@lru_cache(maxsize=4)
def _machine(cpu: str | None, optimising: bool) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = "" if cpu else llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(),
        features=features,
        opt=2 if optimising else 0,
        reloc="static",
        codemodel="large",
    )


def _dump(name: str, module: Module, text: str) -> None:
    """GPUFERRY_SIM_DUMP=folder keeps what is compiled, for a person to read."""
    folder = os.environ.get(DUMP)
    if not folder:
        return
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    plain = re.sub(r"\W", "_", name)[:150]
    (path / f"{plain}.ll").write_text(text)
    (path / f"{plain}.ptx").write_text(module.kernel(name).text)


_BLOCK = re.compile(r"^[\w.$]+:", re.MULTILINE)
_ATTRIBUTES = 'nounwind null_pointer_is_valid "probe-stack"="inline-asm"'
_RUN_THREAD = f"""
define void @sim_kernel_run_thread(ptr %thread) {_ATTRIBUTES} {{
  %block = load ptr, ptr %thread, align 8
  %px = getelementptr i8, ptr %thread, i64 {THREAD["tid.x"]}
  %py = getelementptr i8, ptr %thread, i64 {THREAD["tid.y"]}
  %pz = getelementptr i8, ptr %thread, i64 {THREAD["tid.z"]}
  %pl = getelementptr i8, ptr %thread, i64 {THREAD["linear"]}
  %x = load i32, ptr %px, align 4
  %y = load i32, ptr %py, align 4
  %z = load i32, ptr %pz, align 4
  %linear = load i32, ptr %pl, align 4
  call void @kernel(ptr %thread, ptr %block, i32 %x, i32 %y, i32 %z, i32 %linear)
  ret void
}}
"""

# ntid is at least 1 in each dimension, so the loops test at their ends.
_RUN_BLOCK = f"""
define void @sim_kernel_run_block(ptr noalias readonly %block) {_ATTRIBUTES} {{
entry:
  %thread = alloca [{THREAD_SIZE} x i8], align 8
  %px = getelementptr i8, ptr %thread, i64 {THREAD["tid.x"]}
  %py = getelementptr i8, ptr %thread, i64 {THREAD["tid.y"]}
  %pz = getelementptr i8, ptr %thread, i64 {THREAD["tid.z"]}
  %pl = getelementptr i8, ptr %thread, i64 {THREAD["linear"]}
  %pnx = getelementptr i8, ptr %block, i64 48
  %pny = getelementptr i8, ptr %block, i64 52
  %pnz = getelementptr i8, ptr %block, i64 56
  %nx = load i32, ptr %pnx, align 4, !invariant.load !0
  %ny = load i32, ptr %pny, align 4, !invariant.load !0
  %nz = load i32, ptr %pnz, align 4, !invariant.load !0
  store ptr %block, ptr %thread, align 8
  %pblocal = getelementptr i8, ptr %block, i64 {BLOCK["local"][0]}
  %pblocalend = getelementptr i8, ptr %block, i64 {BLOCK["local_end"][0]}
  %local = load ptr, ptr %pblocal, align 8, !invariant.load !0
  %localend = load ptr, ptr %pblocalend, align 8, !invariant.load !0
  %plocal = getelementptr i8, ptr %thread, i64 {THREAD["local"]}
  %ptop = getelementptr i8, ptr %thread, i64 {THREAD["local_top"]}
  %pend = getelementptr i8, ptr %thread, i64 {THREAD["local_end"]}
  store ptr %local, ptr %plocal, align 8
  store ptr %local, ptr %ptop, align 8
  store ptr %localend, ptr %pend, align 8
  br label %loopz
loopz:
  %z = phi i32 [ 0, %entry ], [ %z1, %nextz ]
  store i32 %z, ptr %pz, align 4
  %rowz = mul i32 %z, %ny
  br label %loopy
loopy:
  %y = phi i32 [ 0, %loopz ], [ %y1, %nexty ]
  store i32 %y, ptr %py, align 4
  %row = add i32 %rowz, %y
  %first = mul i32 %row, %nx
  br label %loopx
loopx:
  %x = phi i32 [ 0, %loopy ], [ %x1, %loopx ]
  %linear = add i32 %first, %x
  store i32 %x, ptr %px, align 4
  store i32 %linear, ptr %pl, align 4
  call void @kernel(ptr %thread, ptr %block, i32 %x, i32 %y, i32 %z, i32 %linear)
  %x1 = add nuw nsw i32 %x, 1
  %morex = icmp ult i32 %x1, %nx
  br i1 %morex, label %loopx, label %nexty
nexty:
  %y1 = add nuw nsw i32 %y, 1
  %morey = icmp ult i32 %y1, %ny
  br i1 %morey, label %loopy, label %nextz
nextz:
  %z1 = add nuw nsw i32 %z, 1
  %morez = icmp ult i32 %z1, %nz
  br i1 %morez, label %loopz, label %done
done:
  ret void
}}
"""
