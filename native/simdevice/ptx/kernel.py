"""One kernel on its way to an object: what the functions that it reaches share while they are emitted."""

from __future__ import annotations

from functools import cached_property

from .analysis import Program
from .model import Function, Variable
from .module import Module, parameter_offsets
from .usage import taken

_UNBOUNDED = 16 << 10  # bytes for what is known only when it runs, beside the stack limit


class KernelContext:
    """Layouts, declarations and numbers of one kernel."""

    def __init__(self, module: Module, kernel: Function, checked: bool = False) -> None:
        """`checked`: every address that the kernel forms is compared with what it may reach."""
        self.checked = checked
        self.module = module
        self.kernel = kernel
        self.program = Program(module, kernel)
        self.shared = module.shared_layout(kernel)
        self.declared: dict[str, str] = {}
        self.sites = 0
        self.gathers = False  # the processor loads vectors from addresses that do not follow each other
        self.quick = False  # the code is to be made in little time
        self.interleaved = False  # lanes that wait come back to their turn from wherever others stand
        self.helpers: dict[str, str] = {}  # functions that an object brings along, by name
        self._frames: dict[int, int] = {}
        self._takes_more = False

    @cached_property
    def pointed_constants(self) -> list[Variable]:
        """Variables in the constant space whose addresses the kernel may hold in registers."""
        found: dict[int, Variable] = {}
        for body in self.program.bodies.values():
            unit = self.module.unit_of(body.function)
            for name in taken(body.items):
                symbol = unit.find(body.function, name)
                if isinstance(symbol, Variable) and symbol.space == "const":
                    found[symbol.index] = symbol
        return [found[index] for index in sorted(found)]

    @property
    def parameter_bytes(self) -> int:
        offsets = parameter_offsets(self.kernel)
        return offsets[-1] + self.kernel.parameters[-1].size if offsets else 0

    def callees(self, function: Function, position: int) -> list[Function]:
        """What the call at a position of a body may reach."""
        return self.program.bodies[function.index].callees.get(position, [])

    def take_frame(self, function: Function, size: int) -> None:
        """So many bytes of a lane's local memory are the function's while it runs."""
        self._frames[function.index] = max(size, self._frames.get(function.index, 0))

    def take_more(self) -> None:
        """And as many as the program says when it runs."""
        self._takes_more = True

    @property
    def local_bytes(self) -> int:
        """Local memory for all of its functions, each once, and for how deep they may call themselves."""
        known = sum(size for index, size in self._frames.items() if index in self.program.bodies)
        return known + (_UNBOUNDED if self._takes_more or self.program.is_recursive else 0)

    def declare(self, name: str, text: str) -> None:
        self.declared.setdefault(name, text)

    def next_site(self) -> int:
        self.sites += 1
        return self.sites
