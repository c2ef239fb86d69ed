"""Compiles PTX kernels through LLVM to x86-64 objects that follow simdevice/kernel_abi.h."""

from __future__ import annotations

from .compiler import compile_kernel
from .errors import DefinedTwice, LinkError, NotDefined, OtherPrototype, PtxError
from .link import check, check_calls, check_complete, definitions, link, missing, runtime_functions
from .model import KernelInfo, VariableInfo
from .module import Module
from .parser import parse
from .refused import check_instructions
from .verify import check_bodies

__all__ = [
    "DefinedTwice",
    "KernelInfo",
    "LinkError",
    "Module",
    "NotDefined",
    "OtherPrototype",
    "PtxError",
    "VariableInfo",
    "check",
    "check_bodies",
    "check_calls",
    "check_complete",
    "check_instructions",
    "compile_kernel",
    "definitions",
    "link",
    "missing",
    "parse",
    "runtime_functions",
]
