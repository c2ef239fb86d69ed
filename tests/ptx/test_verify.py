"""PTX that is none is refused when it is loaded; what is valid and not carried, at a launch.

What is found wrong, NVIDIA's ptxas finds wrong too, where it is there to be asked; and what it takes is not
refused.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gpuferry.native.simdevice.ptx import PtxError, check_bodies, isa, parse
from gpuferry.native.simdevice.ptx.types import TYPES

from tests.helpers.toolkits import toolkit

from . import driver
from .ptx import HEADER, entry, store

REGISTERS = """.reg .pred %p<8>; .reg .b16 %h<8>; .reg .u16 %us<8>; .reg .f16 %hf<4>; .reg .f16x2 %hh<4>;
.reg .b32 %r<32>; .reg .u32 %u<8>; .reg .s32 %s<8>; .reg .f32 %f<16>;
.reg .b64 %x<24>; .reg .u64 %ul<8>; .reg .s64 %sl<8>; .reg .f64 %g<16>; .reg .b128 %q<4>;
.shared .b32 sh[64];"""

WRONG = {
    "adn.s32 %r1, %r2, %r3;": "Not a name of any known instruction: 'adn'",
    "add.foo.s32 %r1, %r2, %r3;": "Unknown modifier '.foo'",
    "ld.globl.u32 %r1, [%x1];": "Unknown modifier '.globl'",
    "add %r1, %r2, %r3;": "Unexpected instruction types",
    "add.b32 %r1, %r2, %r3;": "Unexpected instruction types",
    "cvt.u32 %r1, %r2;": "Unexpected instruction types",
    "mul.s32 %r1, %r1, %r2;": "required for instruction 'mul'",
    "fma.f32 %f1, %f1, %f1, %f1;": "required for instruction 'fma'",
    "div.f32 %f1, %f1, %f1;": "required for instruction 'div'",
    "setp.s32 %p1, %r1, %r1;": "required for instruction 'setp'",
    "ex2.f32 %f1, %f2;": "required for instruction 'ex2'",
    "add.s32 %r1, %r2;": "Arguments mismatch for instruction 'add'",
    "add.s32 %r1, %r2, %r3, %r4;": "Arguments mismatch for instruction 'add'",
    "ret %r1;": "Arguments mismatch for instruction 'ret'",
    "add.s32 %r1, %r2, %f1;": "Arguments mismatch for instruction 'add'",
    "add.s32 %r1, %r2, %x1;": "Arguments mismatch for instruction 'add'",
    "add.f32 %f1, %u1, %f2;": "Arguments mismatch for instruction 'add'",
    "add.u16 %h1, %h2, %r1;": "Arguments mismatch for instruction 'add'",
    "add.s32 %r1, %r2, 0f3F800000;": "Arguments mismatch for instruction 'add'",
    "add.f32 %f1, %f2, 1;": "Arguments mismatch for instruction 'add'",
    "add.s32 %r1, [%x2], %r3;": "Arguments mismatch for instruction 'add'",
    "mul.wide.s32 %r1, %r1, %r2;": "Arguments mismatch for instruction 'mul'",
    "shl.b32 %r1, %r1, %x2;": "Arguments mismatch for instruction 'shl'",
    "setp.eq.s32 %r1, %r1, %r1;": "Arguments mismatch for instruction 'setp'",
    "selp.b32 %r1, %r1, %r2, %r3;": "Arguments mismatch for instruction 'selp'",
    "mov.u32 %r1, %f1;": "Arguments mismatch for instruction 'mov'",
    "mov.pred %p1, %r2;": "Arguments mismatch for instruction 'mov'",
    "ld.global.u32 %h1, [%x1];": "Arguments mismatch for instruction 'ld'",
    "ld.global.f32 %g1, [%x1];": "Arguments mismatch for instruction 'ld'",
    "st.global.u32 [%x1], %h1;": "Arguments mismatch for instruction 'st'",
    "cvt.rn.f32.s32 %r1, %f1;": "Arguments mismatch for instruction 'cvt'",
    "sub.sat.u32 %r1, %r2, %r3;": "Illegal modifier '.sat'",
    "add.ftz.f64 %g1, %g2, %g3;": "Illegal modifier '.ftz'",
    "add.rz.f16 %h1, %h2, %h3;": "Illegal modifier '.rz'",
    "add.cc.u16 %h1, %h2, %h3;": "Illegal modifier '.cc'",
    "add.sat.cc.s32 %r1, %r2, %r3;": "cannot be combined",
    "mul.wide.u64 %x1, %x2, %x3;": "Illegal modifier '.wide'",
    "mul.sat.bf16 %h1, %h2, %h3;": "Illegal modifier '.sat'",
    "mad.lo.sat.s32 %r1, %r2, %r3, %r4;": "cannot be combined",
    "mad.wide.cc.u32 %x1, %r2, %r3, %x4;": "cannot be combined",
    "mad24.lo.sat.s32 %r1, %r2, %r3, %r4;": "cannot be combined",
    "mad24.hi.sat.u32 %r1, %r2, %r3, %r4;": "Illegal modifier '.sat'",
    "fma.rn.ftz.bf16 %h1, %h2, %h3, %h4;": "Illegal modifier '.ftz'",
    "fma.rn.relu.f32 %f1, %f2, %f3, %f4;": "Illegal modifier '.relu'",
    "fma.rn.relu.sat.f16 %h1, %h2, %h3, %h4;": "cannot be combined",
    "abs.ftz.bf16 %h1, %h2;": "Illegal modifier '.ftz'",
    "min.ftz.f64 %g1, %g2, %g3;": "Illegal modifier '.ftz'",
    "min.b32 %r1, %r2, %r3;": "Unexpected instruction types",
    "max.relu.u32 %r1, %r2, %r3;": "Illegal modifier '.relu'",
    "max.xorsign.f32 %f1, %f2, %f3;": "requires one of .abs",
    "max.ftz.NaN.abs.f32 %f1, %f2, %f3;": "requires one of .xorsign",
    "max.s32 %r1, %r2, %f3;": "Arguments mismatch for instruction 'max'",
    "div.approx.f64 %g1, %g2, %g3;": "Illegal modifier '.approx'",
    "sqrt.rn.ftz.f64 %g1, %g2;": "Illegal modifier '.ftz'",
    "ex2.approx.ftz.f16 %h1, %h2;": "Illegal modifier '.ftz'",
    "tanh.approx.ftz.f32 %f1, %f2;": "Illegal modifier '.ftz'",
    "lg2.approx.2pi.ftz.f32 %f1, %f2;": "Illegal modifier '.2pi'",
    "sin.approx.2pi.f32 %f1, %f2;": "requires one of .ftz",
    "clmad.lo.u32 %r1, %r2, %r3, %r4;": "Unexpected instruction types specified for 'clmad",
    "setp.lo.s32 %p1, %r1, %r2;": "Illegal modifier '.lo'",
    "setp.lt.b32 %p1, %r1, %r2;": "Illegal modifier '.lt'",
    "setp.equ.s32 %p1, %r1, %r2;": "Illegal modifier '.equ'",
    "setp.eq.ftz.f64 %p1, %g1, %g2;": "Illegal modifier '.ftz'",
    "setp.lt.and.s32 %p1, %r1, %r2;": "Arguments mismatch for instruction 'setp'",
    "set.num.bf16x2.f16x2 %r1, %r2, %r3;": "Unexpected instruction types specified for 'set'",
    "set.ge.u16.f32 %h1, %f2, %f3;": "Unexpected instruction types specified for 'set'",
    "set.lo.u32.s32 %r1, %r2, %r3;": "Illegal modifier '.lo'",
    "set.lt.u32.f32 %r1, %f2, %f3, %p1;": "Arguments mismatch for instruction 'set'",
    "slct.u32.u32 %r1, %r2, %r3, %r4;": "Unexpected instruction types specified for 'slct'",
    "slct.ftz.u32.s32 %r1, %r2, %r3, %r4;": "Illegal modifier '.ftz'",
    "lop3.b32 %r1, %r2, %r3, %r4, %r5;": "Arguments mismatch for instruction 'lop3'",
    "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 1;": "Arguments mismatch for instruction 'lop3'",
    "testp.finite.f16 %p1, %h1;": "Unexpected instruction types specified for 'testp'",
    "bmsk.b32 %r1, %r2, %r3;": "One of .clamp .wrap required for instruction 'bmsk'",
    "szext.s32 %r1, %r2, %r3;": "One of .clamp .wrap required for instruction 'szext'",
    "dp2a.u32.u32 %r1, %r2, %r3, %r4;": "One of .hi .lo required for instruction 'dp2a'",
    "dp4a.lo.u32.u32 %r1, %r2, %r3, %r4;": "Illegal modifier '.lo'",
    "ld.relaxed.u32 %r1, [%x1];": "requires one of .cluster .cta .gpu .sys",
    "st.acquire.gpu.u32 [%x1], %r1;": "Illegal modifier '.acquire'",
    "bar.sync.u8 0;": "Unexpected instruction types specified for 'bar'",
    "bar.foo 0;": "Unknown modifier '.foo'",
    "bar.sync;": "Arguments mismatch for instruction 'bar'",
    "bar.sync %x1;": "Arguments mismatch for instruction 'bar'",
    "bar.arrive 0;": "Arguments mismatch for instruction 'bar'",
    "bar.red.popc.pred %p1, 0, %p2;": "Unexpected instruction types",
    "bar.red.u32 %r1, 0, %p2;": "required for instruction 'bar'",
    "barrier.cluster.arrive 1;": "Arguments mismatch for instruction 'barrier'",
    "barrier 0;": "required for instruction 'barrier'",
    "atom.foo.global.add.u32 %r1, [%x1], %r2;": "Unknown modifier '.foo'",
    "atom.global.u32 %r1, [%x1], %r2;": "required for instruction 'atom'",
    "atom.global.add.b32 %r1, [%x1], %r2;": "Unexpected instruction types specified for 'atom'",
    "atom.global.and.u32 %r1, [%x1], %r2;": "Unexpected instruction types specified for 'atom'",
    "atom.global.cas.u32 %r1, [%x1], %r2, %r3;": "Unexpected instruction types specified for 'atom'",
    "atom.global.inc.s32 %r1, [%x1], %r2;": "Unexpected instruction types specified for 'atom'",
    "atom.global.min.f32 %f1, [%x1], %f2;": "Unexpected instruction types specified for 'atom'",
    "atom.global.add.f16 %h1, [%x1], %h2;": "One of .noftz required for instruction 'atom'",
    "atom.global.add.noftz.u32 %r1, [%x1], %r2;": "Illegal modifier '.noftz'",
    "atom.global.add.u32 %r1, [%x1];": "Arguments mismatch for instruction 'atom'",
    "atom.global.add.u32 %r1, [%x1], %f2;": "Arguments mismatch for instruction 'atom'",
    "atom.global.add.u64 %x1, [%x1], %r2;": "Arguments mismatch for instruction 'atom'",
    "red.acq_rel.gpu.global.add.u32 [%x1], %r2;": "Unknown modifier '.acq_rel'",
    "red.global.exch.b32 [%x1], %r2;": "Unknown modifier '.exch'",
    "fence.foo.cta;": "Unknown modifier '.foo'",
    "fence.acq_rel;": "required for instruction 'fence'",
    "fence.sc.cta %r1;": "Arguments mismatch for instruction 'fence'",
    "fence.sc.cta.u32;": "Unexpected instruction types specified for 'fence'",
    "membar.gpu;": "Unknown modifier '.gpu'",
    "membar;": "required for instruction 'membar'",
    "vote.sync.all.pred %p1, %p2, %x1;": "Arguments mismatch for instruction 'vote'",
    "vote.sync.pred %p1, %p2, -1;": "required for instruction 'vote'",
    "vote.sync.any.b32 %r1, %p1, -1;": "Unexpected instruction types specified for 'vote'",
    "match.any.b32 %r1, %r2, -1;": "One of .sync required for instruction 'match'",
    "match.any.sync.u32 %r1, %r2, -1;": "Unexpected instruction types specified for 'match'",
    "match.any.sync.b32 %r1|%p1, %r2, -1;": "Arguments mismatch for instruction 'match'",
    "redux.sync.xor.u32 %r1, %r2, -1;": "Unexpected instruction types specified for 'redux'",
    "redux.sync.min.abs.s32 %r1, %r2, -1;": "Illegal modifier '.abs'",
    "shfl.sync.b32 %r1, %r2, 1, 0, -1;": "required for instruction 'shfl'",
    "shfl.sync.up.b64 %x1, %x2, 1, 0, -1;": "Unexpected instruction types specified for 'shfl'",
    "elect %r1|%p1, -1;": "One of .sync required for instruction 'elect'",
    "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8},"
    "{%r5,%r6,%r5,%r6}, {%f1,%f2,%f3,%f4};": "Illegal matrix shape '.m16n8k32' for instruction 'mma'",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6},"
    "{%f1,%f2,%f3,%f4};": "Unexpected instruction types specified for 'mma'",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32 {%r1,%r2}, {%r1,%r2,%r3,%r4}, {%r5,%r6},"
    "{%f1,%f2,%f3,%f4};": "Unexpected instruction types specified for 'mma'",
    "wmma.load.a.sync.aligned.row.m16n16k8.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%x1];": "Illegal matrix",
    "add.s32 %r1, %r2, %zz;": "Unknown symbol '%zz'",
    "add.s32 %r1, %r2, %r32;": "Unknown symbol '%r32'",
    "mov.b32 %r1, %reserved_smem_offset_2;": "Unknown symbol '%reserved_smem_offset_2'",
    "mov.b32 %r1, %pm8;": "Unknown symbol '%pm8'",
    "mov.b32 %r1, %envreg32;": "Unknown symbol '%envreg32'",
    "atom.global.add.u32 %r1, [nobody], %r2;": "Unknown symbol 'nobody'",
    "bra nowhere;": "Unknown symbol 'nowhere'",
    "@%r1 bra L;": "Predicate expression expected",
    "add.s32 %r1, %r2, %r3": "expected ','",
    "add.s32 %r1, , %r3;": "expected an operand",
    "add.s32 %r1, %r2, #;": "expected an operand",
}

RIGHT = """
add.u32 %s1, %r2, %s1;  add.f32 %f1, %r1, %f2;  add.f16 %h1, %hf1, %h2;  add.f16x2 %r1, %hh1, %r2;
add.sat.s32 %r1, %r2, -1;  mul.wide.s32 %x1, %r1, 4;  mad.lo.u64 %ul1, %x1, %sl1, %x2;
mul.rn.f32 %f1, %f2, 0f3F800000;  shl.b32 %f1, %f1, 3;  shr.s64 %x1, %x1, %r1;
lop3.b32 %r1, %r2, %f3, %r4, 0x80;  prmt.b32 %f1, %r2, %r3, 0x3210;  setp.eq.f32 %p1, %r1, %f1;
setp.lt.and.s32 %p1|%p2, %r1, %r1, !%p2;  selp.f32 %r1, %f1, 0f00000000, %p3;  and.pred %p1, %p2, !%p3;
xor.pred %p1, %p2, 1;  mov.u32 %r1, %tid.x;  mov.u64 %x1, sh;  mov.b32 %f1, %r1;  mov.u64 %x1, sh+4;
mov.b64 {%r1, %r2}, %x1;  mov.b32 %r1, {%h1, %h2};  mov.u16 %h1, %tid.x;  mov.u32 %r1, WARP_SZ;
ld.shared.u8 %r1, [sh+3];  ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%x1+-16];  st.global.u64 [%x1], 7;
ld.global.b16 %f1, [%x1];  ld.global.f64 %x1, [%x1];  st.shared.u8 [sh], %x1;
ld.global.nc.L1::no_allocate.u32 %r1, [%x1];  cvt.u32.u16 %x1, %r1;  cvt.rn.f16.u8 %r1, %h1;
cvt.rn.f16x2.f32 %r1, %f1, %f2;  cvt.pack.sat.u8.s32.b32 %r1, %r1, %r2, %r3;  popc.b64 %r1, %x2;
bfe.u64 %x1, %x2, %r3, %r4;  shfl.sync.idx.b32 %r1|%p1, %r2, 1, 31, -1;  ex2.approx.ftz.f32 %f1, %f2;
vadd.u32.u32.u32.sat %r1, %r2.b0, %r3.h1;  bar.sync 0;  atom.global.cas.b32 %r1, [%x1], %r2, %r3;
vmad.s32.s32.u32.sat %r1, %r2, %r3.b0, -%r4;
@!%p1 bra L;  add.u32 %u1, %u2, (3 + 4) * 2;  mov.f32 %f1, .5;  mov.f32 %f1, 1.0+2.0;
ld.global.u32 %r1, [%x1+4+8];  ld.global.u32 %r1, [%x1].unified;  mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid;
add.s32.sat %r1, %r2, %r3;  add.rn.f16 %h1, %h2, %h3;  max.f32 %f1, %r2, 1.0;  min.f32 %f1, %f2, %f3, %f4;
max.xorsign.abs.bf16x2 %r1, %r2, %r3;  mad.hi.sat.s32 %r1, %r2, %r3, %r4;  rsqrt.approx.ftz.f64 %g1, %g2;
max.NaN.abs.f32 %f1, %f2, %f3, %f4;
rcp.rn.ftz.f64 %g1, %g2;  setp.lo.u16 %p1, %h1, %h2;  setp.eq.f16x2 %p1|%p2, %r2, %r3;
sin.approx.2pi.ftz.f32 %f1, %f2;  cos.approx.ftz.2pi.f32 %f1, %f2;  clmad.hi.s64 %x1, %x2, 3, %x4;
ld.mmio.acquire.sys.u32 %r1, [%x1];  st.mmio.release.sys.u32 [%x1], %r1;  mov.u32 %r1, %locality_domain_id;
set.eq.bf16.f16 %h1, %h2, %h3;  set.lt.and.u16.bf16 %h1, %h2, %h3, !%p1;  set.neu.f16x2.f16x2 %r1, %r2, %r3;
slct.ftz.u64.f32 %x1, %x2, %x3, %f1;  lop3.and.b32 _|%p1, %r1, %r2, %r3, 1, !%p2;
dp2a.hi.s32.u32 %r1, 1, %r2, %r3;
ld.mmio.relaxed.sys.global.u32 %r1, [%x1];  ld.volatile.global.v2.u32 {%r1, %r2}, [%x1];
bar.sync %r1, %r2;  bar.red.popc.u32 %r1, 0, %p1;  bar.red.and.pred %p1, 0, 64, !%p2;  bar.cta.sync 0;
bar.warp.sync 0xffffffff;  barrier.cta.red.popc.aligned.u32 %r1, 0, %p1;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire;  fence.cta;  fence.acq_rel.gpu;  fence.proxy.alias;  fence.proxy.async.global;
fence.proxy.async.shared::cta;  fence.proxy.tensormap::generic.acquire.gpu [%x1], 128;
fence.proxy.tensormap::generic.release.cta;  fence.mbarrier_init.release.cluster;  membar.proxy.alias;
membar.proxy.async;
fence.acquire.sync_restrict::shared::cluster.cluster;  membar.gl;  vote.sync.all.pred %p1, 1, -1;
vote.sync.ballot.b32 %r1, !%p2, -1;  match.all.sync.b64 %r1|%p1, %x1, -1;  match.all.sync.b32 %r1, %r2, -1;
redux.sync.min.s32 %r1, %r2, -1;  redux.sync.xor.b32 %r1, %r2, -1;  shfl.sync.up.b32 %f1, 5, 1, 0, -1;
elect.sync _|%p1, -1;  atom.global.v4.f32.add {%f1, %f2, %f3, %f4}, [%x1], {%f1, %f2, %f3, %f4};
atom.gpu.global.add.u32 %r1, [%x1], %r2;  atom.global.add.noftz.bf16x2 %r1, [%x1], %r2;
atom.global.add.L2::cache_hint.u32 %r1, [%x1], %r2, %x3;  atom.global.add.f32 %r1, [%x1], 1.0;
atom.global.add.noftz.f32 %f1, [%x1], %f2;
atom.global.cas.b128 %q1, [%x1], %q2, %q3;  red.gpu.global.release.add.u32 [%x1], %r2;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [sh];
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6},
    {%f1,%f2,%f3,%f4};
mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4},
    {%r5,%r6,%r7,%r8}, {%f1,%f2,%f3,%f4}, %r9, 0;
wmma.load.c.sync.aligned.row.m16n16k8.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%x1];
prmt .b32 %r1, %r2, %r3, 0x3210;  @%p1 ld .global .u32 %r1, [%x1];
"""


def text(body: str) -> str:
    return HEADER + f".visible .entry k(.param .u64 p0)\n{{\n{REGISTERS}\nL:\n{body}\nret;\n}}\n"


def verdicts(statements: Sequence[str]) -> dict[str, str | None]:
    """What is wrong with each statement, alone in a kernel."""
    found: dict[str, str | None] = {}
    for statement in statements:
        try:
            check_bodies(parse(text(statement)))
            found[statement] = None
        except PtxError as error:
            found[statement] = error.reason
    return found


def ptxas(statements: Sequence[str], folder: Path) -> dict[str, str | None]:
    """What NVIDIA's assembler finds wrong with each of them; skips the test where there is none."""
    nvcc = toolkit().nvcc
    if nvcc is None or not nvcc.with_name("ptxas").exists():
        pytest.skip("there is no ptxas")
    source = folder / "asked.ptx"
    whole = text("\n".join(statements)).replace(".version 8.8\n.target sm_80", ".version 9.5\n.target sm_100")
    source.write_text(whole)
    command = [str(each) for each in (nvcc.with_name("ptxas"), "-arch=sm_100", "-o", folder / "made", source)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first = whole[: whole.index("\nL:\n")].count("\n") + 3
    found: dict[str, str | None] = dict.fromkeys(statements)
    for line, reason in re.findall(r"line (\d+); error\s*: (.*)", said.stdout + said.stderr):
        found[statements[int(line) - first]] = reason
    return found


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        (".b8 a[65536];", None),
        (".b8 a[65537];", "0x10001"),
        (".b8 a[40000]; .const .b8 b[25536];", None),
        (".b8 a[3]; .const .align 16 .b8 b[65520];", None),
        (".b8 a[3]; .const .align 16 .b8 b[65521]; .const .b8 c;", "0x10002"),
    ],
)
def test_what_the_constant_space_holds(declared: str, size: str | None) -> None:
    """Used or not; the numbers are ptxas's."""
    whole = f"{HEADER}.const {declared}\n.visible .entry k() {{ ret; }}\n"
    if size is None:
        check_bodies(parse(whole))
    else:
        with pytest.raises(PtxError, match=rf"too much global constant data \({size} bytes"):
            check_bodies(parse(whole))


@pytest.mark.parametrize("statement", WRONG)
def test_what_is_wrong_is_said(statement: str) -> None:
    found = verdicts([statement])[statement]
    assert found is not None
    assert WRONG[statement] in found


def test_ptxas_finds_it_wrong_too(tmp_path: Path) -> None:
    # An error of syntax is the last one that it tells.
    statements = [each for each, reason in WRONG.items() if not reason.startswith("expected")]
    assert [each for each, reason in ptxas(statements, tmp_path).items() if reason is None] == []


def test_what_is_right_passes(tmp_path: Path) -> None:
    statements = [f"{' '.join(each.split())};" for each in RIGHT.split(";") if each.strip()]
    assert {each: reason for each, reason in verdicts(statements).items() if reason} == {}
    assert {each: reason for each, reason in ptxas(statements, tmp_path).items() if reason} == {}


def test_a_name_is_a_predicate_in_one_scope_and_a_number_in_another() -> None:
    """As in texts of inline assembly, which know nothing of each other."""
    number = "{ .reg .u32 p; mov.u32 p, %r1; add.u32 %r2, p, 1; }"
    statement = f"{number} {{ .reg .pred p; setp.eq.u32 p, %r1, 7; @p bra L; }} {number}"
    assert verdicts([statement]) == {statement: None}
    (reason,) = verdicts([number.replace("}", "@p bra L; }")]).values()
    assert reason == "Predicate expression expected"


# A register of each class, and by the types' names one that fits.
_CLASSES = ["%p1", "%h1", "%us1", "%hf1", "%hh1", "%r1", "%u1", "%f1", "%x1", "%ul1", "%g1"]


def forms() -> list[str]:
    """Each instruction of the table with each type, and registers of each class in all places of the type."""
    made = []
    for (opcode, form), type_, register in product(isa.FORMS.items(), TYPES, _CLASSES):
        if form.named != 1 or opcode == "cvta" or (form.types and type_ not in form.types):
            continue
        kind = TYPES[type_]
        modifiers = [opcode, *(["l", "wrap"] if opcode == "shf" else [])]
        for asked, choice in form.needs:
            if not asked or kind.kind in ("f" if asked == "f" else "us"):
                modifiers.append(
                    next(each for each in ("lo", "rn", "eq", "approx", "clamp") if each in choice)
                )
        if opcode in ("ld", "st"):
            modifiers.append("global")
        places = form.operands[: len(form.operands) - form.optional]
        letters = {
            "*": "[%x1]" if opcode in ("ld", "st") else "%r3",
            "c": "%r2",
            "p": "%p2",
            "d": "%p3",
            "n": "1",
        }
        operands = ", ".join(letters.get(place, register) for place in places)
        made.append(f"{'.'.join([*modifiers, type_])} {operands};")
        if register == _FITTING[kind.bits if kind.bits in _FITTING else 32]:
            made += [
                f"{'.'.join([*modifiers, extra, type_])} {operands};"
                for extra in _EXTRA
                if extra not in modifiers
            ]
    return made


# Registers that hold bits of a width, and modifiers that go with some instructions and types only.
_FITTING = {1: "%p1", 16: "%h1", 32: "%r1", 64: "%x1"}
_EXTRA = (
    "sat",
    "ftz",
    "cc",
    "rz",
    "wide",
    "relu",
    "NaN",
    "xorsign.abs",
    "relaxed.gpu",
    "acquire",
    "ltu",
    "lo",
    "num",
)


def forms_of_two_types() -> list[str]:
    """Each instruction that names two types, with any two."""
    made = []
    for (opcode, form), first, last in product(isa.FORMS.items(), TYPES, TYPES):
        if form.named != 2 or opcode == "cvt" or not form.operands:
            continue
        of = {place: _FITTING.get(TYPES[name].bits) for place, name in (("T", first), ("t", last))}
        if None in of.values():
            continue
        modifiers = [next(each for each in ("lo", "eq") if each in choice) for _, choice in form.needs]
        places = form.operands[: len(form.operands) - form.optional]
        operands = ", ".join(of.get(place) or "%r2" for place in places)
        made.append(f"{'.'.join([opcode, *modifiers, first, last])} {operands};")
    return made


def test_ptxas_takes_nothing_that_is_refused(tmp_path: Path) -> None:
    """Of 4,000 forms, most of them wrong."""
    statements = forms() + forms_of_two_types()
    asked = ptxas(statements, tmp_path)
    suspicious = [each for each, reason in asked.items() if reason is None]
    assert len(suspicious) > 200
    assert {each: reason for each, reason in verdicts(suspicious).items() if reason} == {}


def test_a_module_with_a_broken_kernel_is_refused_at_load(capfd: pytest.CaptureFixture[str]) -> None:
    """It was told at the kernel's first launch."""
    bad = HEADER + entry(store("%r1"), "good", 1) + entry("    nonsense.u32 %r10, %r11;", "bad", 1)
    with pytest.raises(driver.CudaError) as caught:
        driver.Module(bad)
    assert caught.value.status == driver.INVALID_PTX
    line = bad.split("\n").index("    nonsense.u32 %r10, %r11;") + 1
    for message in (caught.value.log, capfd.readouterr().err):
        assert f"bad: line {line}: Not a name of any known instruction: 'nonsense'" in message


def test_what_is_not_carried_is_told_at_its_launch() -> None:
    """.oob is of every device since sm_90, and not carried here."""
    other = entry("    fma.rn.oob.f16 %h0, %h1, %h2, %h3;", "other", 1)
    module = driver.Module(HEADER + entry(store("%r1"), "good", 1) + other)
    out = driver.Buffer(np.zeros(4, np.uint32))
    with pytest.raises(driver.CudaError) as caught:
        module.launch("other", out)
    assert caught.value.status == driver.INVALID_PTX
    module.launch("good", out, block=(4,))
    assert list(out.read()) == [0, 1, 2, 3]


def test_names_are_known_where_their_types_are_not() -> None:
    """Registers of one name in several scopes, of several types."""
    body = """{ .reg .f32 a<3>; add.f32 a1, a2, a1; } { .reg .u64 a; add.u64 a, a, 1; }
        {
        M: .reg .b32 b1; add.u32 b1, b1, 1; @%p1 bra M;
        }
        .reg .b32 a1x<3>; mov.u32 a1x2, 5; .pragma "nounroll; %nothing";"""
    check_bodies(parse(text(body)))
    with pytest.raises(PtxError, match="Unknown symbol 'a1x3'"):
        check_bodies(parse(text(body + "mov.u32 a1x3, 5;")))


_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
_BITS |= {"f32": 32, "s32": 32}


def fragment(type_: str, rows: int, columns: int) -> str:
    """A lane's registers of a matrix."""
    letter = {"f32": "f", "f64": "g"}.get(type_, "r")
    count = rows * columns // 32 * _BITS[type_] // {"f": 32, "g": 64, "r": 32}[letter]
    return "{" + ", ".join(f"%{letter}{i}" for i in range(max(1, count))) + "}"


def products_of_matrices() -> list[str]:
    """mma of each shape with all types whose numbers of bits fit; few are right."""
    made = []
    shapes = sorted(set().union(*isa.SHAPES["mma"].values()))
    for shape, a, b in product(shapes, isa.SHAPES["mma"], isa.SHAPES["mma"]):
        m, n, k = (int(each) for each in re.findall(r"\d+", shape))
        if _BITS.get(a) != _BITS.get(b) or a not in _BITS or (shape == "m8n8k4" and a == "f16"):
            continue
        for d, c in product(("f16", "f32", "f64", "s32"), repeat=2):
            if (d in ("f16", "f32")) == (_BITS[a] in (16, 32)):
                fragments = (fragment(d, m, n), fragment(a, m, k), fragment(b, k, n), fragment(c, m, n))
                operation = ".xor.popc" if a == "b1" else ""
                name = f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{c}{operation}"
                made.append(f"{name} {', '.join(fragments)};")
    return made


@pytest.mark.system
def test_ptxas_multiplies_the_same_matrices(tmp_path: Path) -> None:
    """Of 2,000 products some 40."""
    statements = products_of_matrices()
    right = [each for each, reason in ptxas(statements, tmp_path).items() if reason is None]
    assert len(right) > 30
    assert [each for each, reason in verdicts(statements).items() if reason is None] == right
