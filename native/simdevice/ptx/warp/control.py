"""The steps of a warp: blocks one after the other, each with the lanes that have come to it.

A branch whose lanes agree stays one. Where they part, both sides' lanes are added to those that wait for
their blocks (`wait`), and the warp goes on with the next step for which lanes may wait. A branch that
leads past such a step leaves its lanes waiting as well. A step for which nobody waits is passed by.
"""

from __future__ import annotations

from ..emit import layout, reach
from ..model import Instruction, Operand
from ..types import U32
from .flow import EXIT, ends_thread
from .function import Unsuitable, WarpEmitter
from .lines import Lines
from .neighbours import Numbers
from .rows import Shape
from .widen import WARP, vector

_MASK = vector("i1")
# Rounds of a loop that waits, after which lanes that are past it are let go first.
_PATIENCE = 64
# Of LLVM IR in a block of quickly made code, before registers become values.
_LINES = 200


class Control:
    """Emits the body of one function. A step is named by its number in the order."""

    def __init__(self, e: WarpEmitter) -> None:
        self.e = e
        self.plan = e.plan
        self.steps = e.plan.steps
        self.endings = e.kernel.program.endings[e.function.index]
        self.end = len(self.steps)
        self.step_of = {step.block: number for number, step in enumerate(self.steps) if step.head is None}
        self.loop_ends = {
            step.head: number for number, step in enumerate(self.steps) if step.head is not None
        }
        self.waiting_loops = self._waiting_loops()
        self.pending: set[tuple[int, int]] = set()
        self.divided = 0  # where in the text the last block was divided
        self.nexts = [self.end] * self.end
        self._decide()

    def _waiting_loops(self) -> set[int]:
        """The ends of loops in which a thread may wait for another."""
        found = set()
        for number, step in enumerate(self.steps):
            if step.head is not None:
                continue
            branch = self.plan.blocks[step.block].branch
            if branch in self.e.yields:
                found |= {to for to in self._successors(number) if self.steps[to].head is not None}
        return found

    def _to(self, number: int, block: int) -> int:
        """The step that an edge from a step to a block leads to: a loop's end if it leads back."""
        if block == EXIT:
            return self.end
        target = self.step_of[block]
        if target <= number:
            return self.loop_ends[target]
        return target

    def _successors(self, number: int) -> list[int]:
        step = self.steps[number]
        return [self._to(number, each) for each in self.plan.blocks[step.block].targets]

    def _parts(self, number: int) -> bool:
        step = self.steps[number]
        return step.head is None and step.block in self.plan.parting

    def _switches(self, number: int) -> bool:
        step = self.steps[number]
        branch = self.plan.blocks[step.block].branch
        item = self.e.items[branch] if branch is not None else None
        return step.head is None and isinstance(item, Instruction) and item.opcode == "brx"

    def _decide(self) -> None:
        """Which edges leave their lanes waiting."""
        for number in range(self.end):
            if self._parts(number) or self._switches(number):
                for to in self._successors(number):
                    self._wait(number, to)
        changed = True
        while changed:
            changed = False
            for number, step in enumerate(self.steps):
                if step.head is not None:
                    continue
                for to in self._successors(number):
                    if to != self.end and (number, to) not in self.pending and self._next(number) < to:
                        self._wait(number, to)
                        changed = True

    def _next(self, number: int) -> int:
        """The next step for which lanes may wait when `number` has been done."""
        return self.nexts[number]

    def _wait(self, number: int, to: int) -> None:
        """Lanes that go from one step to another wait there."""
        if to != self.end:
            self.pending.add((number, to))
            # While they wait behind a loop the others may go through all of it again.
            left = (head for head, end in self.loop_ends.items() if head <= number < end < to)
            first = min(left, default=number)
            self.nexts[first:to] = [min(each, to) for each in self.nexts[first:to]]

    @property
    def divergent_waits(self) -> set[int]:
        """The ends of waiting loops that some lanes may have left while others wait. Nobody waits for those
        that have ended the kernel; for those that have ended a function who called it does."""
        if self.e.function.is_kernel:
            return {number for number in self.waiting_loops if self._next(number) != self.end}
        return {
            number
            for number in self.waiting_loops
            if any(self._parts(each) or self._switches(each) for each in range(self._head(number), number))
        }

    def _head(self, number: int) -> int:
        head = self.steps[number].head
        assert head is not None
        return head

    def _meetings(self) -> list[int]:
        """Steps at which lanes wait for those that are still in a loop that waits."""
        if not self.divergent_waits:
            return []
        found = []
        for number, step in enumerate(self.steps):
            positions = self.plan.blocks[step.block].positions
            first = next((each for each in positions if isinstance(self.e.items[each], Instruction)), None)
            if step.head is None and first in self.plan.meetings:
                found.append(number)
        return found

    def text(self) -> None:
        e = self.e
        e.kernel.interleaved |= bool(self.divergent_waits)
        meetings = self._meetings()
        awaited = {to for _, to in self.pending} | self.divergent_waits | set(meetings)
        self.waits = {number: e.alloca(_MASK) for number in sorted(awaited)}
        for slot in self.waits.values():
            e.entry.append(f"  store {_MASK} zeroinitializer, ptr {slot}")
        self.mask = e.alloca(_MASK)
        e.entry.append(f"  store {_MASK} %mask.in, ptr {self.mask}")
        e.branch("s0.run" if self.steps else "end")
        for number, step in enumerate(self.steps):
            self._enter(number)
            if number in meetings:
                self._wait_for_the_others(number)
            if step.head is None:
                self._block(number)
            else:
                self._loop_end(number, step.head)
        e.open("end")
        self._come_back_to_loops()
        for number in meetings:
            self._come_back_to(number)
        self._return()
        if self.divided:
            e.open("nowhere")
            e.mask = "%mask.in"
            e.stop("sim_rt_trap")

    def _enter(self, number: int) -> None:
        """`.ask`: go on if nobody waits; `.run`: with the lanes that come and those that wait."""
        e = self.e
        e.closed = True  # every step ends with a branch
        e.repeats = any(head <= number < end for head, end in self.loop_ends.items())
        slot = self.waits.get(number)
        if slot is not None:
            e.open(f"s{number}.ask")
            waiting = e.raw_op(f"load {_MASK}, ptr {slot}", "i1")
            e.raw(f"store {_MASK} {waiting}, ptr {self.mask}")
            e.branch_if(e.any(waiting), f"s{number}.do", self._ask(self._next(number)))
            e.open(f"s{number}.run")
            waiting = e.raw_op(f"load {_MASK}, ptr {slot}", "i1")
            coming = e.raw_op(f"load {_MASK}, ptr {self.mask}", "i1")
            e.raw(f"store {_MASK} {e.raw_op(f'or {_MASK} {waiting}, {coming}')}, ptr {self.mask}")
            e.open(f"s{number}.do")
            e.raw(f"store {_MASK} zeroinitializer, ptr {slot}")
        else:
            e.open(f"s{number}.run")
        e.mask = e.raw_op(f"load {_MASK}, ptr {self.mask}", "i1")

    def _ask(self, number: int) -> str:
        return "end" if number == self.end else f"s{number}.ask"

    def _loop_end(self, number: int, head: int) -> None:
        e = self.e
        if number in self.waiting_loops:
            if number in self.divergent_waits:
                self._let_others_go(number)
            e.call("void", "sim_rt_yield", "ptr %thread")
        e.branch(f"s{head}.run")

    def _come_back_to_loops(self) -> None:
        """In turn, since the lanes of one may wait for those of another."""
        e = self.e
        loops = sorted(self.divergent_waits)
        if len(loops) < 2:
            for number in loops:
                self._come_back_to(number)
            return
        last = e.alloca("i32")
        e.entry.append(f"  store i32 -1, ptr {last}")
        before = e.raw_op(f"load i32, ptr {last}")
        for at, number in enumerate(loops):
            self._come_back_to(
                number, e.raw_op(f"icmp slt i32 {before}, {at}"), f"store i32 {at}, ptr {last}"
            )
        for at, number in enumerate(loops):
            self._come_back_to(number, "true", f"store i32 {at}, ptr {last}")

    def _come_back_to(self, number: int, condition: str = "true", noting: str = "") -> None:
        e = self.e
        back, on = e.label(), e.label()
        waiting = e.raw_op(f"load {_MASK}, ptr {self.waits[number]}", "i1")
        e.branch_if(e.raw_op(f"and i1 {e.any(waiting)}, {condition}"), back, on)
        e.open(back)
        if noting:
            e.raw(noting)
        e.branch(f"s{number}.ask")
        e.open(on)

    def _let_others_go(self, number: int) -> None:
        """Lanes that have left the loop may have what the others wait for."""
        e = self.e
        rounds = e.alloca("i32")
        e.entry.append(f"  store i32 0, ptr {rounds}")
        count = e.raw_op(f"add i32 {e.raw_op(f'load i32, ptr {rounds}')}, 1")
        e.raw(f"store i32 {count}, ptr {rounds}")
        often = e.raw_op(f"icmp eq i32 {e.raw_op(f'and i32 {count}, {_PATIENCE - 1}')}, 0")
        go, stay = e.label(), e.label()
        e.branch_if(often, go, stay, rare=True)
        e.open(go)
        e.raw(f"store {_MASK} {e.mask}, ptr {self.waits[number]}")
        e.call("void", "sim_rt_yield", "ptr %thread")
        e.branch(self._ask(self._next(number)))
        e.open(stay)

    def _wait_for_the_others(self, number: int) -> None:
        """Lanes that were let go do not meet without those that they left behind."""
        e = self.e
        behind = "zeroinitializer"
        for end in sorted(self.divergent_waits):
            waiting = e.raw_op(f"load {_MASK}, ptr {self.waits[end]}")
            behind = e.raw_op(f"or {_MASK} {waiting}, {behind}")
        wait, meet = e.label(), e.label()
        e.branch_if(e.any(behind), wait, meet, rare=True)
        e.open(wait)
        e.raw(f"store {_MASK} {e.mask}, ptr {self.waits[number]}")
        e.branch(self._ask(self._next(number)))
        e.open(meet)

    def _block(self, number: int) -> None:
        e = self.e
        block = self.plan.blocks[self.steps[number].block]
        for position in block.positions:
            item = e.items[position]
            e.position = position
            if not isinstance(item, Instruction):
                continue
            e.scopes = list(e.visible[position])
            if e.kernel.quick and len(e.lines) - self.divided > _LINES:
                self._divide()
            if position != block.branch or item.opcode == "trap":
                e.instruct(item)
                continue
            if position in self.endings:
                e.instruct(item)
                self._come_back(number)
                return
            e.instruction = item
            self._branch(number, item)
            return
        if not e.closed:
            targets = self._successors(number)
            if targets:
                self._go(number, targets[0])

    def _divide(self) -> None:
        """Begins another block for LLVM, in a way that it does not see through. How long it takes to choose
        instructions for vectors is the square of a block's length."""
        e = self.e
        on = e.label()
        block = e.raw_op("load volatile ptr, ptr %warp, align 8")
        e.branch_if(e.raw_op(f"icmp ne ptr {block}, null"), on, "nowhere")
        e.open(on)
        self.divided = len(e.lines)

    def _come_back(self, number: int) -> None:
        """From a call in which lanes may have ended: those that are left go on."""
        e = self.e
        left = e.raw_op(f"load i32, ptr {self._live()}, align 8")
        lanes = e.raw_op(f"bitcast i32 {left} to {_MASK}", "i1")
        _, after = self._successors(number)
        self._leave(after, e.raw_op(f"and {_MASK} {e.mask}, {lanes}"))
        e.branch(self._ask(self._next(number)))

    def _branch(self, number: int, item: Instruction) -> None:
        e = self.e
        guard = e.guard_value(item) if item.guard is not None else None
        if item.opcode == "call":
            whole = e.mask
            if guard is not None:
                e.mask = e.raw_op(f"and {_MASK} {whole}, {e.spread('i1', guard)}", "i1")
            e.emit_as_thread(item)
            e.mask = whole
        if item.opcode != "ret" and ends_thread(item) and not e.function.is_kernel:
            self._end(e.mask if guard is None else e.raw_op(f"and {_MASK} {e.mask}, {e.spread('i1', guard)}"))
        if item.opcode == "brx":
            self._switch(number, item, guard)
            return
        targets = self._successors(number)
        if len(set(targets)) == 1:
            self._go(number, targets[0])
            return
        assert guard is not None
        taken, passed = targets
        if e.varies(guard):
            self._leave(taken, e.raw_op(f"and {_MASK} {e.mask}, {guard}"))
            not_taken = e.raw_op(f"xor {_MASK} {guard}, splat (i1 true)")
            self._leave(passed, e.raw_op(f"and {_MASK} {e.mask}, {not_taken}"))
            e.branch(self._ask(self._next(number)))
            return
        yes, no = e.label(), e.label()
        e.branch_if(guard, yes, no)
        e.open(yes)
        self._go(number, taken)
        e.open(no)
        self._go(number, passed)

    def _switch(self, number: int, item: Instruction, guard: str | None) -> None:
        """A branch by index: a comparison for each label."""
        e = self.e
        index: Operand = item.operands[0]
        targets = self._successors(number)
        chosen = e.spread("i32", e.read(index, U32))
        rest = e.mask
        if guard is not None:
            asked = e.spread("i1", guard)
            rest = e.raw_op(f"and {_MASK} {rest}, {asked}", "i1")
            others = e.raw_op(f"xor {_MASK} {asked}, splat (i1 true)")
            self._leave(targets.pop(), e.raw_op(f"and {_MASK} {e.mask}, {others}"))
        for case, to in enumerate(targets):
            same = e.raw_op(f"icmp eq {vector('i32')} {chosen}, splat (i32 {case})")
            lanes = e.raw_op(f"and {_MASK} {rest}, {same}", "i1")
            self._leave(to, lanes)
            rest = e.raw_op(f"xor {_MASK} {rest}, {lanes}", "i1")
        nowhere = e.raw_op(f"icmp ne i32 {e.bits(rest)}, 0")
        e.stop_if(nowhere, "sim_rt_trap")
        e.branch(self._ask(self._next(number)))

    def _go(self, number: int, to: int) -> None:
        """All lanes of a step go to another."""
        e = self.e
        if to == self.end or (number, to) in self.pending:
            self._leave(to, e.mask)
            e.branch(self._ask(self._next(number)))
        else:
            e.raw(f"store {_MASK} {e.mask}, ptr {self.mask}")
            e.branch(f"s{to}.run")

    def _leave(self, to: int, lanes: str) -> None:
        """Lanes wait for a step, or have ended."""
        e = self.e
        if to != self.end:
            slot = self.waits[to]
            before = e.raw_op(f"load {_MASK}, ptr {slot}")
            e.raw(f"store {_MASK} {e.raw_op(f'or {_MASK} {before}, {lanes}')}, ptr {slot}")
        elif e.function.is_kernel:
            self._end(lanes)

    def _end(self, lanes: str) -> None:
        """The threads of these lanes are at their end."""
        e = self.e
        gone = e.raw_op(f"xor i32 {e.bits(lanes)}, -1")
        left = e.raw_op(f"and i32 {e.raw_op(f'load i32, ptr {self._live()}, align 8')}, {gone}")
        e.raw(f"store i32 {left}, ptr {self._live()}, align 8")

    def _live(self) -> str:
        return self.e.entry_value("&live", f"getelementptr i8, ptr %warp, i64 {layout.LANES['live']}")

    def _return(self) -> None:
        e = self.e
        if e.frame.size and not e.function.is_kernel:
            e.raw("store i64 %frame.used, ptr %frame.top, align 8")
        e.finish("ret void")


def _first_mask(shape: Shape) -> list[str]:
    """The lanes with which a kernel begins; in rows no warp lacks any."""
    if shape is Shape.ROWS:
        return [f"  %mask.in = bitcast i32 -1 to {_MASK}"]
    return [
        f"  %live.at = getelementptr i8, ptr %warp, i64 {layout.LANES['live']}",
        "  %live = load i32, ptr %live.at, align 8",
        f"  %mask.in = bitcast i32 %live to {_MASK}",
    ]


def function_text(e: WarpEmitter) -> str:
    """The whole function as LLVM IR."""
    plan = e.plan
    e.entry.append(f"  %thread = getelementptr i8, ptr %warp, i64 {layout.LANES['lane']}")
    if e.function.is_kernel:
        e.entry += ["  %block = load ptr, ptr %warp, align 8", *_first_mask(plan.shape)]
    e.kinds["%mask.in"] = "i1"
    if e.kernel.checked:
        e.framed = reach.place_locals(e, e.items, e.frame)
    control = Control(e)
    if control.divergent_waits:
        if not e.function.is_kernel:
            raise Unsuitable("lanes that wait in a function")
        plan.distrust()
        control = Control(e)
    if e.function.is_kernel and e.is_small:
        e.numbers = Numbers(e, Lines(plan))
    e.declare()
    e.closed = False
    control.text()
    return e.whole(_frame_prologue(e.frame))


def _frame_prologue(frame: reach.Frame) -> list[str]:
    """Takes a frame of every lane's local memory: %frame, pointers."""
    size = frame.taken(reach.LARGEST_ALIGN)  # each lane's memory, and what is taken of it, are a multiple
    places = "<" + ", ".join(f"i64 {lane}" for lane in range(WARP)) + ">"
    wide = vector("i64")
    zeros = f"<{WARP} x i32> zeroinitializer"
    local = layout.LANES["lane"] + layout.THREAD["local"]
    return [
        f"  %frame.top = getelementptr i8, ptr %warp, i64 {layout.LANES['local_used']}",
        f"  %frame.room = getelementptr i8, ptr %warp, i64 {layout.LANES['local_size']}",
        "  %frame.used = load i64, ptr %frame.top, align 8",
        "  %frame.size = load i64, ptr %frame.room, align 8",
        "  %frame.left = sub i64 %frame.size, %frame.used",
        f"  %frame.full = icmp ult i64 %frame.left, {size}",
        "  br i1 %frame.full, label %frame.none, label %frame.take, !prof !1",
        "frame.none:",
        f"  %frame.lane = getelementptr i8, ptr %warp, i64 {layout.LANES['lane']}",
        "  call void @sim_rt_overflow(ptr %frame.lane)",
        "  unreachable",
        "frame.take:",
        f"  %frame.next = add i64 %frame.used, {size}",
        "  store i64 %frame.next, ptr %frame.top, align 8",
        f"  %frame.local.at = getelementptr i8, ptr %warp, i64 {local}",
        "  %frame.local = load ptr, ptr %frame.local.at, align 8",
        "  %frame.base = getelementptr i8, ptr %frame.local, i64 %frame.used",
        f"  %frame.one = insertelement {wide} poison, i64 %frame.size, i64 0",
        f"  %frame.all = shufflevector {wide} %frame.one, {wide} poison, {zeros}",
        f"  %frame.each = mul {wide} %frame.all, {places}",
        f"  %frame.free = getelementptr i8, ptr %frame.base, {wide} %frame.each",
        *frame.aligned(reach.LARGEST_ALIGN, vector("ptr"), wide, "splat (i64 {})"),
    ]
