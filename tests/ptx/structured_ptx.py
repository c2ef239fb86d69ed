"""Programs of structured.py as PTX."""

from __future__ import annotations

from .form import AREA, INPUTS, SIZES, Names
from .form_matrices import TILE
from .form_memory import BULK, GATHERED_BYTES
from .forms import FORMS
from .ptx import HEADER
from .structured import (
    CASES,
    COUNTERS,
    DEEPEST,
    LOCALS,
    REGISTERS,
    Apart,
    Atomic,
    Break,
    Call,
    Condition,
    Count,
    Counters,
    Exchange,
    Fetch,
    Formed,
    If,
    Lanes,
    Leave,
    Load,
    Loads,
    Local,
    Loop,
    Multiply,
    Operation,
    Program,
    Repeat,
    Return,
    Statement,
    Switch,
)

# {d}, {a}, {b}, {c} are registers, {k} is a constant.
CODE = {
    "add": "add.u32 {d}, {a}, {b};",
    "sub": "sub.u32 {d}, {a}, {b};",
    "mul": "mul.lo.u32 {d}, {a}, {b};",
    "high": "mul.hi.u32 {d}, {a}, {b};",
    "mad": "mad.lo.u32 {d}, {a}, {b}, {c};",
    "and": "and.b32 {d}, {a}, {b};",
    "or": "or.b32 {d}, {a}, {b};",
    "xor": "xor.b32 {d}, {a}, {b};",
    "not": "not.b32 {d}, {a};",
    "constant": "add.u32 {d}, {a}, {k};",
    "left": "and.b32 %t0, {b}, 63; shl.b32 {d}, {a}, %t0;",
    "right": "and.b32 %t0, {b}, 63; shr.u32 {d}, {a}, %t0;",
    "arithmetic right": "and.b32 %t0, {b}, 63; shr.s32 {d}, {a}, %t0;",
    "least": "min.u32 {d}, {a}, {b};",
    "most": "max.u32 {d}, {a}, {b};",
    "least signed": "min.s32 {d}, {a}, {b};",
    "most signed": "max.s32 {d}, {a}, {b};",
    "divide": "or.b32 %t0, {b}, 1; div.u32 {d}, {a}, %t0;",
    "remainder": "or.b32 %t0, {b}, 1; rem.u32 {d}, {a}, %t0;",
    "ones": "popc.b32 {d}, {a};",
    "zeros": "clz.b32 {d}, {a};",
    "mirrored": "brev.b32 {d}, {a};",
    "rotated": "shf.l.wrap.b32 {d}, {a}, {a}, {b};",
    "chosen": "lop3.b32 {d}, {a}, {b}, {c}, 0xCA;",
    "bytes": "prmt.b32 {d}, {a}, {b}, 0x2750;",
    "distance": "sad.u32 {d}, {a}, {b}, {c};",
    "float add": "mov.b32 %f0, {a}; mov.b32 %f1, {b}; add.rn.f32 %f2, %f0, %f1; mov.b32 {d}, %f2;",
    "float mul": "mov.b32 %f0, {a}; mov.b32 %f1, {b}; mul.rn.f32 %f2, %f0, %f1; mov.b32 {d}, %f2;",
}


def _has(program: Program, statements: tuple[Statement, ...], kinds: tuple[type, ...]) -> bool:
    """Whether there are statements of these kinds, or forms by which threads tell each other something."""
    return any(
        isinstance(each, kinds)
        or (Lanes in kinds and isinstance(each, Formed) and each.where != "thread")
        or any(_has(program, part, kinds) for part in (*parts(each), *_called(program, each)))
        for each in statements
    )


def parts(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The bodies that a statement has."""
    if isinstance(s, If):
        return s.then, s.other
    if isinstance(s, (Loop, Repeat)):
        return (s.body,)
    if isinstance(s, Apart):
        return s.even, s.odd
    return s.cases if isinstance(s, Switch) else ()


def _called(program: Program, s: Statement) -> tuple[tuple[Statement, ...], ...]:
    return (program.functions[s.function],) if isinstance(s, Call) else ()


class _Writer:
    """One function's body. %m0, %m1 … are the masks of lanes that are there at each depth."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.labels = 0
        self.ends: list[str] = []  # of the loops around
        # Where nobody tells anybody anything there are no masks.
        self.masked = _meets(program)

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def waits(self, statements: tuple[Statement, ...]) -> bool:
        """Whether it matters there which lanes come."""
        return self.masked and _has(self.program, statements, (Lanes, Break, Return, Leave))

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def condition(self, condition: Condition, to: str) -> None:
        mask = (1 << condition.bits) - 1
        self.emit(
            f"and.b32 %t0, %v{condition.a}, {mask}; and.b32 %t1, %v{condition.b}, {mask};",
            f"setp.{condition.how}.u32 {to}, %t0, %t1;",
        )

    def statements(self, statements: tuple[Statement, ...], depth: int) -> None:
        for each in statements:
            self.statement(each, depth)
            if self.masked and not isinstance(each, Leave) and _has(self.program, (each,), (Leave,)):
                # Who has ended is waited for by nobody.
                self.emit(f"setp.eq.u32 %q, 0, 0; vote.sync.ballot.b32 %m{depth}, %q, %m{depth};")

    def statement(self, s: Statement, depth: int) -> None:
        if isinstance(s, Operation):
            text = CODE[s.name].format(d=f"%v{s.d}", a=f"%v{s.a}", b=f"%v{s.b}", c=f"%v{s.c}", k=s.k)
            if s.guard is None:
                self.emit(text)
            else:
                self.condition(s.guard, "%q")
                self.emit(*(f"@%q {each.strip()};" for each in text.split(";") if each.strip()))
        elif isinstance(s, If):
            self._if(s, depth)
        elif isinstance(s, Loop):
            self._loop(s, depth)
        elif isinstance(s, Repeat):
            self._repeat(s, depth)
        elif isinstance(s, Apart):
            self._apart(s, depth)
        elif isinstance(s, Switch):
            self._switch(s, depth)
        elif isinstance(s, (Break, Return, Leave)):
            self._part(s, f"%m{depth}")
        elif isinstance(s, Lanes):
            self._lanes(s, f"%m{depth}")
        elif isinstance(s, Atomic):
            type_ = {"exch": "b32", "cas": "b32", "and": "b32", "or": "b32", "xor": "b32"}.get(s.how, "u32")
            given = f"%v{s.b}, %v{s.a}" if s.how == "cas" else f"%v{s.a}"
            self.emit(
                "mov.u32 %t0, %tid.x; mov.u32 %t1, words; mad.lo.u32 %t1, %t0, 4, %t1;",
                f"atom.shared.{s.how}.{type_} %v{s.d}, [%t1], {given};",
            )
        elif isinstance(s, Loads):
            to = ", ".join(f"%v{s.d + each}" for each in range(s.count))
            self.emit(
                f"and.b32 %t0, %v{s.at}, {INPUTS // s.count - 1}; mul.wide.u32 %x0, %t0, {4 * s.count};",
                f"add.u64 %x0, %x0, %inputs; ld.global.v{s.count}.u32 {{{to}}}, [%x0];",
            )
        elif isinstance(s, Count):
            self.emit(f"red.shared.add.u32 [counters+{4 * s.counter}], %v{s.a};")
        elif isinstance(s, Counters):
            self.emit(
                "bar.sync 0;",
                f"and.b32 %t0, %v{s.a}, {COUNTERS - 1}; shl.b32 %t0, %t0, 2; mov.u32 %t1, counters;",
                f"add.u32 %t0, %t0, %t1; ld.shared.u32 %v{s.d}, [%t0];",
                "bar.sync 0;",
            )
        elif isinstance(s, Exchange):
            self.emit(
                "mov.u32 %t0, %tid.x; mov.u32 %t2, slots; mad.lo.u32 %t1, %t0, 4, %t2;",
                f"st.shared.u32 [%t1], %v{s.a};",
                "bar.sync 0;",
                f"add.u32 %t0, %t0, {s.k}; mov.u32 %t1, %ntid.x; rem.u32 %t0, %t0, %t1;",
                f"mad.lo.u32 %t1, %t0, 4, %t2; ld.shared.u32 %v{s.d}, [%t1];",
                "bar.sync 0;",
            )
        elif isinstance(s, Multiply):
            self.emit(
                "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 "
                f"{{%t0, %t1}}, {{%v{s.a}}}, {{%v{s.b}}}, {{%v{s.c[0]}, %v{s.c[1]}}};",
                f"mov.u32 %v{s.d[0]}, %t0; mov.u32 %v{s.d[1]}, %t1;",
            )
        elif isinstance(s, Local):
            for register in (s.to, s.at):
                self.emit(
                    f"and.b32 %t0, %v{register}, {LOCALS - 1}; mul.wide.u32 %x0, %t0, 4; mov.u64 %x1, own;",
                    "add.u64 %x0, %x0, %x1;",
                    f"st.local.u32 [%x0], %v{s.a};" if register is s.to else "",
                )
                if register is s.to:
                    self.emit(f"// {s.to}")
            self.emit(f"ld.local.u32 %v{s.d}, [%x0];")
        elif isinstance(s, Load):
            self.emit(
                f"and.b32 %t0, %v{s.at}, {INPUTS - 1}; mul.wide.u32 %x0, %t0, 4; add.u64 %x0, %x0, %inputs;",
                f"ld.global.u32 %v{s.d}, [%x0];",
            )
        elif isinstance(s, Formed):
            d, a = ([f"%v{each}" for each in registers] for registers in (s.d, s.a))
            self.emit(FORMS[s.form].code(Names(d, a, f"%m{depth}", s.k)))
        elif isinstance(s, Fetch):
            self.emit(
                f"and.b32 %t0, %v{s.x}, 15; and.b32 %t1, %v{s.y}, 15;",
                "tex.2d.v4.u32.s32 {%t0, %t1, %t2, %t2}, [%texture, {%t0, %t1}];",
                f"mov.u32 %v{s.d}, %t0;",
            )
        else:
            self.emit(
                "{ .param .b32 r; .param .b32 a; .param .b32 b; .param .b32 m; .param .b64 i; .param .b64 x;",
                f"st.param.b32 [a], %v{s.a}; st.param.b32 [b], %v{s.b}; st.param.b32 [m], %m{depth};",
                "st.param.b64 [i], %inputs; st.param.b64 [x], %texture;",
                f"call (r), f{s.function}, (a, b, m, i, x);",
                f"ld.param.b32 %v{s.d}, [r]; }}",
            )

    def _if(self, s: If, depth: int) -> None:
        other, end = self.label(), self.label()
        predicate, here, there = f"%p{depth}", f"%m{depth}", f"%m{depth + 1}"
        self.condition(s.condition, predicate)
        if self.waits(s.then + s.other):
            self.emit(f"vote.sync.ballot.b32 {there}, {predicate}, {here};")
        self.emit(f"@!{predicate} bra {other};")
        self.statements(s.then, depth + 1)
        self.emit(f"bra {end};", f"{other}:")
        if self.waits(s.other):
            self.emit(f"not.b32 %t0, {there}; and.b32 {there}, {here}, %t0;")
        self.statements(s.other, depth + 1)
        self.emit(f"{end}:")

    def _loop(self, s: Loop, depth: int) -> None:
        again, end = self.label(), self.label()
        predicate, left, there = f"%p{depth}", f"%n{depth}", f"%m{depth + 1}"
        waits = self.waits(s.body)
        self.emit(f"and.b32 {left}, %v{s.rounds}, 3; mov.u32 {there}, %m{depth};", f"{again}:")
        self.emit(f"setp.ne.u32 {predicate}, {left}, 0;")
        if waits:
            self.emit(f"vote.sync.ballot.b32 {there}, {predicate}, {there};")
        self.emit(f"@!{predicate} bra {end};")
        self.ends.append(end)
        self.statements(s.body, depth + 1)
        self.ends.pop()
        self.emit(f"sub.u32 {left}, {left}, 1;", f"bra {again};", f"{end}:")

    def _repeat(self, s: Repeat, depth: int) -> None:
        again, end, left = self.label(), self.label(), f"%n{depth}"
        self.emit(f"mov.u32 {left}, {s.rounds}; mov.u32 %m{depth + 1}, %m{depth};", f"{again}:")
        if s.rounds % 2:  # asked at the head, as code is that nobody has optimised
            self.emit(f"setp.eq.u32 %q, {left}, 0; @%q bra {end};")
        self.statements(s.body, depth + 1)
        self.emit(f"sub.u32 {left}, {left}, 1;")
        self.emit(f"bra {again};" if s.rounds % 2 else f"setp.ne.u32 %q, {left}, 0; @%q bra {again};")
        self.emit(f"{end}:")

    def _apart(self, s: Apart, depth: int) -> None:
        odd, end = self.label(), self.label()
        self.emit(f"mov.u32 %m{depth + 1}, %m{depth}; mov.u32 %t0, %tid.x; and.b32 %t0, %t0, 32;")
        self.emit(f"setp.ne.u32 %p{depth}, %t0, 0; @%p{depth} bra {odd};")
        self.statements(s.even, depth + 1)
        self.emit(f"bra {end};", f"{odd}:")
        self.statements(s.odd, depth + 1)
        self.emit(f"{end}:")

    def _switch(self, s: Switch, depth: int) -> None:
        labels, end = [self.label() for _ in s.cases], self.label()
        index, here, there = f"%n{depth}", f"%m{depth}", f"%m{depth + 1}"
        self.emit(f"and.b32 {index}, %v{s.a}, {CASES - 1};")
        waits = [self.waits(case) for case in s.cases]
        for case, waiting in enumerate(waits):
            if waiting:
                mask = f"%s{depth * CASES + case}"
                self.emit(f"setp.eq.u32 %q, {index}, {case}; vote.sync.ballot.b32 {mask}, %q, {here};")
        table = self.label()
        self.emit(f"{table}: .branchtargets {', '.join(labels)};", f"brx.idx {index}, {table};")
        for case, (label, statements) in enumerate(zip(labels, s.cases, strict=True)):
            self.emit(f"{label}:")
            if waits[case]:
                self.emit(f"mov.u32 {there}, %s{depth * CASES + case};")
            self.statements(statements, depth + 1)
            self.emit(f"bra {end};")
        self.emit(f"{end}:")

    def _part(self, s: Break | Return | Leave, mask: str) -> None:
        self.condition(s.condition, "%q")
        if self.masked:
            self.emit(f"vote.sync.ballot.b32 {mask}, !%q, {mask};")
        if isinstance(s, Leave):
            self.emit("@%q exit;")
        else:
            self.emit(f"@%q bra {self.ends[-1] if isinstance(s, Break) else 'RETURN'};")

    def _lanes(self, s: Lanes, mask: str) -> None:
        d, a = f"%v{s.d}", f"%v{s.a}"
        if s.how == "first":
            self.emit(f"brev.b32 %t0, {mask}; clz.b32 %t0, %t0; shfl.sync.idx.b32 {d}, {a}, %t0, 31, {mask};")
        elif s.how == "exchange":
            self.emit(f"shfl.sync.bfly.b32 {d}, {a}, {s.k}, 31, {mask};")
        elif s.how == "up":
            self.emit(f"shfl.sync.up.b32 {d}, {a}, {s.k}, 0, {mask};")
        elif s.how == "match":
            self.emit(f"and.b32 %t0, {a}, 3; match.any.sync.b32 {d}, %t0, {mask};")
        elif s.how == "ballot":
            self.emit(f"and.b32 %t0, {a}, 1; setp.ne.u32 %q, %t0, 0; vote.sync.ballot.b32 {d}, %q, {mask};")
        elif s.how in ("any", "all"):
            self.emit(
                f"and.b32 %t0, {a}, 1; setp.ne.u32 %q, %t0, 0; vote.sync.{s.how}.pred %q, %q, {mask};",
                f"selp.u32 {d}, 1, 0, %q;",
            )
        else:
            type_ = "b32" if s.how in ("and", "or", "xor") else "u32"
            self.emit(f"redux.sync.{s.how}.{type_} {d}, {a}, {mask};")


_REGISTERS = f"""
    .reg .pred %p<{DEEPEST + 1}>, %q;
    .reg .b32 %v<{REGISTERS}>, %m<{DEEPEST + 2}>, %n<{DEEPEST + 1}>, %t<3>;
    .reg .b32 %s<{CASES * (DEEPEST + 1)}>;
    .reg .b64 %x<3>, %inputs, %texture;
    .reg .f32 %f<3>;
    .local .align 4 .b8 own[{4 * LOCALS}];
    .local .align 16 .b8 mine[{AREA}];
"""


def _body(writer: _Writer, statements: tuple[Statement, ...], depth: int) -> str:
    clear = "".join(f"st.local.u32 [own+{4 * i}], 0; " for i in range(LOCALS))
    clear += "".join(f"st.local.u64 [mine+{i}], 0; " for i in range(0, AREA, 8))
    writer.emit(clear)
    writer.statements(statements, depth)
    return "\n    ".join(writer.lines)


def ptx(program: Program) -> str:
    """A kernel `k` of a pointer to INPUTS words and what forms find behind them, a texture, and one to where
    each thread's registers go."""
    parts = [
        HEADER,
        f".shared .align 4 .b8 counters[{4 * COUNTERS}];\n",
        f".shared .align 4 .b8 slots[{4 * program.threads}];\n",
        f".shared .align 4 .b8 words[{4 * program.threads}];\n",
        f".shared .align 16 .b8 area[{AREA * program.threads}];\n",
        f".shared .align 16 .b8 tiles[{TILE * -(-program.threads // 32)}];\n",
        f".shared .align 8 .b8 gathered[{GATHERED_BYTES}];\n.shared .align 8 .b64 met;\n",
        f".shared .align 16 .b8 bulk[{BULK}];\n",
        *(f".shared .align 16 .b8 row{size}[{size * program.threads}];\n" for size in SIZES),
    ]
    for index, statements in enumerate(program.functions):
        start = "mov.u32 %v2, 11;" + "".join(f" mov.u32 %v{i}, {i};" for i in range(3, REGISTERS))
        parts.append(
            f".func (.param .b32 r) f{index}(.param .b32 a, .param .b32 b, .param .b32 m,\n"
            "    .param .b64 i, .param .b64 x)\n"
            f"{{{_REGISTERS}    ld.param.b32 %v0, [a]; ld.param.b32 %v1, [b]; ld.param.b32 %m1, [m];\n"
            f"    ld.param.b64 %inputs, [i]; ld.param.b64 %texture, [x]; {start}\n"
            f"    {_body(_Writer(program), statements, 1)}\n"
            "RETURN:\n    st.param.b32 [r], %v0;\n    ret;\n}\n"
        )
    start = "".join(f" mov.u32 %v{i}, {i * 0x9E3779B9 & 0xFFFFFFFF};" for i in range(3, REGISTERS))
    ends = " ".join(f"st.global.u32 [%x0+{4 * i}], %v{i};" for i in range(REGISTERS))
    parts.append(
        f".visible .entry k(.param .u64 inputs, .param .u64 texture, .param .u64 to)\n{{{_REGISTERS}"
        "    ld.param.u64 %inputs, [inputs]; ld.param.u64 %texture, [texture];\n"
        "    mov.u32 %v0, %tid.x; mov.u32 %v1, %ctaid.x;\n"
        f"    and.b32 %t0, %v0, {INPUTS - 1}; mul.wide.u32 %x0, %t0, 4; add.u64 %x0, %x0, %inputs;\n"
        f"    ld.global.u32 %v2, [%x0];{start}\n"
        f"    setp.lt.u32 %q, %v0, {COUNTERS}; mov.u32 %t1, counters; mad.lo.u32 %t0, %v0, 4, %t1;\n"
        "    @%q st.shared.u32 [%t0], 0;\n"
        "    mov.u32 %t1, slots; mad.lo.u32 %t0, %v0, 4, %t1; st.shared.u32 [%t0], 0;\n"
        "    mov.u32 %t1, words; mad.lo.u32 %t0, %v0, 4, %t1; st.shared.u32 [%t0], 0;\n"
        + "".join(
            f"    mov.u32 %t1, {name}; mad.lo.u32 %t0, %v0, {size}, %t1;"
            f"{''.join(f' st.shared.u{8 * min(size, 8)} [%t0+{i}], 0;' for i in range(0, size, 8))}\n"
            for name, size in (("area", AREA), *((f"row{size}", size) for size in SIZES))
        )
        + f"    setp.lt.u32 %q, %v0, {GATHERED_BYTES // 8}; mov.u32 %t1, gathered; "
        "mad.lo.u32 %t0, %v0, 8, %t1;\n"
        "    @%q st.shared.u64 [%t0], 0;\n"
        "    setp.eq.u32 %q, %v0, 0; mov.u32 %t0, %ntid.x; @%q mbarrier.init.shared.b64 [met], %t0;\n"
        + ("    bar.sync 0;\n    setp.eq.u32 %q, %v0, %v0; vote.sync.ballot.b32 %m0, %q, 0xffffffff;\n"
           if _meets(program) else "    mov.u32 %m0, 0xffffffff;\n")
        + f"    {_body(_Writer(program), program.body, 0)}\n"
        "    mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x;\n"
        "    mad.lo.u32 %t0, %t0, %t1, %t2;\n"
        f"    ld.param.u64 %x0, [to]; mul.wide.u32 %x1, %t0, {4 * REGISTERS}; add.u64 %x0, %x0, %x1;\n"
        f"    {ends}\n    ret;\n}}\n"
    )  # fmt: skip
    text = "".join(parts)
    return _numbered(text) if program.columns else text


def _numbered(text: str) -> str:
    """Threads of a block of two dimensions, row after row."""
    text = text.replace("%tid.x", "%thread").replace("%ntid.x", "%threads")
    begin = (
        ".reg .b32 %thread, %threads; mov.u32 %thread, %tid.y; mov.u32 %threads, %ntid.x;"
        " mul.lo.u32 %thread, %thread, %threads; mov.u32 %t0, %tid.x; add.u32 %thread, %thread, %t0;"
        " mov.u32 %t0, %ntid.y; mul.lo.u32 %threads, %threads, %t0;"
    )
    return text.replace(_REGISTERS, f"{_REGISTERS}    {begin}\n")


def _meets(program: Program) -> bool:
    """Whether threads depend on each other at all: else the kernel is to be one of threads alone."""

    kinds = (Lanes, Count, Counters, Exchange, Multiply)
    return _has(program, program.body, kinds)
