"""Kernels that are not compiled. The compiler is loaded for it, so this is apart from ptx.py."""

from __future__ import annotations

import pytest
from gpuferry.native.simdevice.ptx import PtxError, compile_kernel, parse

from .ptx import kernel


def refusal(body: str) -> str:
    """Why a kernel of that body is not compiled."""
    with pytest.raises(PtxError) as caught:
        compile_kernel(parse(kernel(body)), "k")
    return caught.value.reason
