"""Compiles PTX kernels through LLVM to x86-64 objects that follow simdevice/kernel_abi.h."""

from __future__ import annotations

from .compiler import compile_kernel
from .errors import PtxError
from .link import link
from .model import KernelInfo, VariableInfo
from .module import Module
from .parser import parse

__all__ = ["KernelInfo", "Module", "PtxError", "VariableInfo", "compile_kernel", "link", "parse"]
