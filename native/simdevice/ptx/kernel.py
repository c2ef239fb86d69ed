"""One kernel on its way to an object: what the functions that it reaches share while they are emitted."""

from __future__ import annotations

from functools import cached_property

from .analysis import Program
from .model import Function, Variable
from .module import Module, parameter_offsets
from .usage import taken


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

    def declare(self, name: str, text: str) -> None:
        self.declared.setdefault(name, text)

    def next_site(self) -> int:
        self.sites += 1
        return self.sites
