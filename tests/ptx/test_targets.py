"""Instructions that a text's `.target` does not have are refused when it is loaded, as ptxas does it.

A device has what its capability says: what ran here on a device of 8.0 did not build for one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from gpuferry.native.simdevice.ptx import PtxError, check_bodies, parse, targets

from tests.helpers.toolkits import toolkit

from . import driver
from .ptx import ANY_TARGET
from .test_verify import text

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120f")
_F4, _R4, _R2 = "{%f1,%f2,%f3,%f4}", "{%r1,%r2,%r3,%r4}", "{%r5,%r6}"
_MMA = f"{_F4},{_R4},{_R2},{_F4}"

# By the first target that has them, or the ones that do.
SINCE = {
    "sm_75": """
        fma.rn.f16 %h1,%h2,%h3,%h4; tanh.approx.f32 %f1,%f2; ex2.approx.f16 %h1,%h2; add.f16x2 %r1,%r2,%r3;
        mov.u32 %r1,%dynamic_smem_size; atom.global.add.noftz.f16 %h1,[%x1],%h2; fence.acq_rel.gpu;
        mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r0,%r1},{%r2},{%r3},{%r0,%r1};
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1},[%r5]; isspacep.shared::cta %p1,%x1;
        min.f32 %f1,%f2,%f3; st.shared::cta.u32 [%r1],%r2; cvt.rn.f16.f32 %h1,%f1; max.s32 %r1,%r2,%r3;
        membar.gl; nanosleep.u32 %r1;
    """,
    "sm_80": f"""
        cvt.rn.bf16x2.f32 %r1,%f1,%f2; cvt.rn.f16x2.f32 %r1,%f1,%f2; cvt.rna.tf32.f32 %r1,%f1;
        cvt.f32.bf16 %f1,%h1; redux.sync.add.u32 %r1,%r2,-1; fma.rn.relu.f16 %h1,%h2,%h3,%h4;
        fma.rn.bf16 %h1,%h2,%h3,%h4; min.f16 %h1,%h2,%h3; max.NaN.f32 %f1,%f2,%f3;
        cp.async.ca.shared.global [%r1],[%x1],4; cp.async.wait_all; mbarrier.init.shared.b64 [%r1],%r2;
        createpolicy.fractional.L2::evict_last.b64 %x1,1.0; discard.global.L2 [%x1],128;
        applypriority.global.L2::evict_normal [%x1],128; neg.bf16 %h1,%h2;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {_MMA}; mov.u32 %r1,%reserved_smem_offset_1;
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%g0,%g1}},{{%g0}},{{%g0}},{{%g0,%g1}};
        mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc {{%r0,%r1}},{{%r2}},{{%r3}},{{%r0,%r1}};
        wmma.load.a.sync.aligned.row.m16n16k8.tf32 {_R4},[%x1];
        wmma.load.a.sync.aligned.row.m8n8k4.f64 {{%g1}},[%x1];
        mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {_F4},{_R4},{_R4},{_F4},%r9,0;
        clmad.lo.u64 %x1,%x2,%x3,%x4;
    """,
    "sm_86": "max.xorsign.abs.f32 %f1,%f2,%f3; min.xorsign.abs.f16 %h1,%h2,%h3;",
    "sm_89": f"""
        cvt.rn.satfinite.e4m3x2.f32 %h1,%f1,%f2; cvt.rn.relu.f16x2.e5m2x2 %r1,%h1;
        mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {_MMA};
    """,
    "sm_90": """
        add.bf16 %h1,%h2,%h3; mul.bf16x2 %r1,%r2,%r3; setp.eq.bf16 %p1,%h1,%h2; set.lt.u32.bf16 %r1,%h2,%h3;
        cvt.rn.tf32.f32 %r1,%f1; cvt.rn.f16.bf16 %h1,%h2; cvt.rzi.s32.bf16 %r1,%h1; cvt.rn.bf16.f64 %h1,%g1;
        cvt.rni.bf16.bf16 %h1,%h2; cvt.rn.bf16.u16 %h1,%h2; tanh.approx.bf16x2 %r1,%r2;
        ex2.approx.ftz.bf16 %h1,%h2; add.u16x2 %r1,%r2,%r3; max.relu.s32 %r1,%r2,%r3;
        ld.relaxed.cluster.global.u32 %r1,[%x1]; elect.sync _|%p1,-1; ld.shared::cluster.u32 %r1,[%r2];
        mapa.u32 %r1,%r2,%r3; getctarank.u32 %r1,%r2; griddepcontrol.wait; cp.async.bulk.commit_group;
        mbarrier.try_wait.shared.b64 %p1,[%r1],%x1; barrier.cluster.arrive.relaxed;
        mbarrier.arrive.expect_tx.shared.b64 %x1,[%r1],%r2;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1],{%r2}; atom.global.exch.b128 %q1,[%x1],%q2;
        atom.global.v2.f32.add {%f1,%f2},[%x1],{%f1,%f2}; atom.global.add.noftz.bf16 %h1,[%x1],%h2;
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1],%r2,[%r3];
        atom.global.add.noftz.f32 %f1,[%x1],%f2; fence.acquire.gpu; fence.proxy.async; membar.proxy.async;
        fence.mbarrier_init.release.cluster; fence.proxy.tensormap::generic.release.gpu;
        prefetch.tensormap [%x1]; mov.u32 %r1,%clusterid.x; mov.u32 %r1,%cluster_ctarank;
        mov.u32 %r1,%aggr_smem_size; fma.rn.oob.f16 %h1,%h2,%h3,%h4;
        mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64
        {%g0,%g1,%g2,%g3},{%g0,%g1},{%g0},{%g0,%g1,%g2,%g3};
    """,
    "sm_100": """
        min.f32 %f1,%f2,%f3,%f4; add.f32x2 %x1,%x2,%x3; fma.rn.f32.f16 %f1,%h1,%h2,%f2;
        add.f32.bf16 %f1,%h1,%f2; ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8},[%x1];
        ld.global.v4.u64 {%x1,%x2,%x3,%x4},[%x5];
        clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1,%q1;
        st.bulk.weak.shared::cta [%x1],%x2,0;
    """,
    "sm_90a sm_100a sm_120f": "setmaxnreg.inc.sync.aligned.u32 64;",
    "sm_100a sm_120f": f"""
        cvt.rn.satfinite.e2m3x2.f32 %h1,%f1,%f2; cvt.rn.bf16x2.ue8m0x2 %r1,%h1;
        stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1],{{%r2}};
        ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {{%r1,%r2}},[%r5];
        mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32 {_MMA};
    """,
    "sm_100a": "cvt.rs.f16x2.f32 %r1,%f1,%f2,%r3; redux.sync.min.f32 %f1,%f2,-1;",
    "sm_120f": f"""
        add.sat.u32 %r1,%r2,%r3; add.u8x4 %r1,%r2,%r3; neg.s8x4 %r1,%r2; max.relu.s8x4 %r1,%r2,%r3;
        mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e5m2.f32 {_MMA};
    """,
}


def statements(texts: str) -> list[str]:
    return [f"{' '.join(each.split())};" for each in texts.split(";") if each.strip()]


def has(key: str) -> tuple[str, ...]:
    return TARGETS[TARGETS.index(key) :] if key[-1].isdigit() else tuple(key.split())


def for_target(target: str, statements: list[str]) -> str:
    return (
        text("\n".join(statements))
        .replace(ANY_TARGET, "")
        .replace("8.8\n.target sm_80", f"9.5\n.target {target}")
    )


def refused(target: str, statement: str) -> str | None:
    try:
        check_bodies(parse(for_target(target, [statement])))
    except PtxError as error:
        return error.reason
    return None


@pytest.mark.parametrize("key", SINCE)
def test_a_target_has_what_it_has(key: str) -> None:
    for statement in statements(SINCE[key]):
        found = [target for target in TARGETS if refused(target, statement) is None]
        assert found == list(has(key)), statement


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_says_the_same(target: str, tmp_path: Path) -> None:
    nvcc = toolkit().nvcc
    if nvcc is None or not nvcc.with_name("ptxas").exists():
        pytest.skip("there is no ptxas")
    every = {each: target in has(key) for key, texts in SINCE.items() for each in statements(texts)}
    whole = for_target(target, list(every))
    source = tmp_path / "asked.ptx"
    source.write_text(whole)
    command = [str(nvcc.with_name("ptxas")), f"-arch={target}", "-o", str(tmp_path / "made"), str(source)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first = whole[: whole.index("\nL:\n")].count("\n") + 3
    wrong = {int(line) - first for line in re.findall(r"line (\d+); error", said.stdout + said.stderr)}
    assert {each: index not in wrong for index, each in enumerate(every)} == every


def test_it_is_said_when_an_image_is_loaded() -> None:
    """With ptxas's words; the device has bf16, and no addition of them before 9.0."""
    with pytest.raises(driver.CudaError) as caught:
        driver.Module(for_target("sm_80", ["add.bf16 %h1, %h2, %h3;"]))
    assert caught.value.status == driver.INVALID_PTX
    assert "Feature 'add.bf16' requires .target sm_90 or higher" in caught.value.log
    with pytest.raises(driver.CudaError) as caught:
        driver.Module(for_target("sm_80", ["mov.u32 %r1, %cluster_ctarank;"]))
    assert "Feature '%cluster_ctarank' requires .target sm_90 or higher" in caught.value.log
    driver.Module(for_target("sm_80", ["fma.rn.bf16 %h1, %h2, %h3, %h4;"]))


def test_a_text_that_says_so_is_not_held_to_its_target() -> None:
    assert ANY_TARGET == targets.ANY_TARGET
    driver.Module(text("add.bf16 %h1, %h2, %h3;"))
