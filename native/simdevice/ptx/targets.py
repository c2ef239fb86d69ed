"""Which targets have an instruction: what a text says of its `.target` is held to when an image is loaded, as
ptxas does it. tests/ptx/test_targets.py asks ptxas about each line.

A text with the comment ANY_TARGET is not held to it. The tests write such texts, since no device has all
instructions. Features of a `.version` are not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .model import Instruction, Operand
from .usage import names

ANY_TARGET = "// gpuferry: any target\n"

# An instruction by some of its words, types among them: `bf16:2` is a word that is there twice, `/4` the
# number of operands, `*` any instruction. By the first target that has it: all lines that fit count.
_SINCE = {
    80: """
        *.bf16 *.bf16x2 *.tf32 cvt.f16x2.f32 clmad redux createpolicy applypriority discard
        fma.relu min.f16 min.f16x2 max.f16 max.f16x2 min.NaN max.NaN cp.async mbarrier
        mma.sp mma.sp::ordered_metadata mma.m16n8k4 mma.m16n8k16 mma.m16n8k32 mma.m16n8k64 mma.m16n8k128
        mma.m16n8k256 mma.and mma.f64 wmma.f64 wmma.m16n16k8 wmma.and
    """,
    86: "min.xorsign max.xorsign",
    89: "cvt.e4m3x2 cvt.e5m2x2 mma.e4m3 mma.e5m2",
    90: """
        *.cluster *.shared::cluster cvt.tf32.rn cvt.tf32.rz cvt.bf16.f16 cvt.bf16.f64 cvt.bf16:2
        cvt.bf16.u8 cvt.bf16.s8 cvt.bf16.u16 cvt.bf16.s16 cvt.bf16.u32 cvt.bf16.s32 cvt.bf16.u64 cvt.bf16.s64
        set.bf16 set.bf16x2 setp.bf16 setp.bf16x2 add.bf16 add.bf16x2 sub.bf16 sub.bf16x2 mul.bf16 mul.bf16x2
        tanh.bf16 tanh.bf16x2 ex2.bf16 ex2.bf16x2 fma.oob add.u16x2 add.s16x2 min.u16x2 min.s16x2 max.u16x2
        max.s16x2 min.relu.s32 max.relu.s32 min.relu.s16x2 max.relu.s16x2
        st.async red.async cp.bulk prefetch.tensormap multimem stmatrix elect mapa getctarank griddepcontrol
        mbarrier.try_wait mbarrier.expect_tx mbarrier.complete_tx atom.b128
        atom.v2 atom.v4 atom.v8 red.v2 red.v4 red.v8 atom.bf16 atom.bf16x2 red.bf16 red.bf16x2
        atom.noftz.f32 red.noftz.f32 atom.noftz.min atom.noftz.max red.noftz.min red.noftz.max
        fence.acquire fence.release fence.async fence.mbarrier_init fence.tensormap::generic membar.async
        mma.f64.m16n8k4 mma.f64.m16n8k8 mma.f64.m16n8k16
    """,
    100: """
        min.f32/4 max.f32/4 add.f32x2 sub.f32x2 mul.f32x2 fma.f32x2 add.f32.f16 add.f32.bf16 sub.f32.f16
        sub.f32.bf16 fma.f32.f16 fma.f32.bf16 ld.v8 st.v8 ld.v4.b64 ld.v4.u64 ld.v4.s64 ld.v4.f64 st.v4.b64
        st.v4.u64 st.v4.s64 st.v4.f64 clusterlaunchcontrol st.bulk
    """,
}

# What only targets for one device (`a`) or for its family (`f`) have: the tens of their numbers.
_SPECIFIC = {
    "9 10 11 12": "setmaxnreg tensormap",
    "10 11 12": """
        cvt.e2m1x2 cvt.e2m3x2 cvt.e3m2x2 cvt.ue8m0x2 ldmatrix.m16n16 ldmatrix.m8n16 stmatrix.m16n8
        mma.kind::f8f6f4
    """,
    "10": "cvt.rs redux.f32",
    "12": """
        add.sat.u32 add.sat.u16x2 add.sat.s16x2 add.u8x4 add.s8x4 sub.u8x4 sub.s8x4 min.u8x4 min.s8x4 max.u8x4
        max.s8x4 neg.s8x4 mma.block_scale mma.e2m1 mma.e2m3 mma.e3m2
    """,
}

# Special registers, without the numbers at their ends.
_REGISTERS = {
    "%reserved_smem_offset_": 80,
    **dict.fromkeys(
        ("%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap"), 80
    ),
    **dict.fromkeys(("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"), 90),
    **dict.fromkeys(("%cluster_ctarank", "%cluster_nctarank", "%aggr_smem_size", "%is_explicit_cluster"), 90),
}


@dataclass(frozen=True)
class _Rule:
    """Which instructions a feature is, by their words, and the first target that has it."""

    name: str
    words: Counter[str]
    operands: int  # 0: any number
    since: int
    families: frozenset[int]  # empty: all targets since then

    def of(self, instruction: Instruction, words: Counter[str]) -> bool:
        if self.operands not in (0, len(instruction.operands)):
            return False
        return all(words[word] >= count for word, count in self.words.items())


def _rule(line: str, since: int, families: frozenset[int]) -> tuple[str, _Rule]:
    text, _, operands = line.partition("/")
    opcode, *parts = text.split(".")
    words = Counter[str]()
    for part in parts:
        twice = part.endswith(":2")
        words[part.removesuffix(":2")] += 2 if twice else 1
    return opcode, _Rule(text.lstrip("*").removesuffix(":2"), words, int(operands or 0), since, families)


def _rules() -> dict[str, list[_Rule]]:
    every = [(since, frozenset[int](), text) for since, text in _SINCE.items()]
    every += [(0, frozenset(map(int, tens.split())), text) for tens, text in _SPECIFIC.items()]
    found: dict[str, list[_Rule]] = {}
    for since, families, text in every:
        for line in text.split():
            opcode, rule = _rule(line, since, families)
            found.setdefault(opcode, []).append(rule)
    return found


_RULES = _rules()
_TARGET = re.compile(r"(?:sm|compute)_(\d{1,6})([af]?)\Z")


class Target:
    """The `.target` that a PTX text names, and whether it has an instruction or a register."""

    def __init__(self, name: str) -> None:
        self._name = name
        found = _TARGET.match(name)
        self._number = int(found[1]) if found else 0
        self._specific = bool(found and found[2])

    def lacks(self, instruction: Instruction) -> str | None:
        """What of an instruction the target does not have, in ptxas's words."""
        words = Counter(instruction.modifiers)
        reason = None
        for rule in (*_RULES.get("*", ()), *_RULES.get(instruction.opcode, ())):
            if rule.of(instruction, words):
                reason = self._reason(rule) or reason
        return reason or next(filter(None, map(self._lacks_register, instruction.operands)), None)

    def _reason(self, rule: _Rule) -> str | None:
        if rule.families:
            here = self._specific and self._number // 10 in rule.families
            return None if here else f"Feature '{rule.name}' not supported on .target '{self._name}'"
        return None if self._number >= rule.since else _requires(rule.name, rule.since)

    def _lacks_register(self, operand: Operand) -> str | None:
        for name in names(operand):
            register = name.partition(".")[0].rstrip("0123456789")
            if self._number < _REGISTERS.get(register, 0):
                return _requires(register, _REGISTERS[register])
        return None


def _requires(name: str, since: int) -> str:
    return f"Feature '{name}' requires .target sm_{since} or higher"
