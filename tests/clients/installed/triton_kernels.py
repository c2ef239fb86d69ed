"""Triton: kernels as machine code of this GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def dot(x, y, out, N: tl.constexpr):
    r = tl.arange(0, N)
    at = r[:, None] * N + r[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at)))


a, b = (torch.arange(10000, device="cuda", dtype=torch.float32) for _ in range(2))
out = torch.empty_like(a)
add[(triton.cdiv(10000, 256),)](a, b, out, 10000, BLOCK=256)
print("add", out.sum().item())
m = (torch.arange(64 * 64, device="cuda") % 5).half().reshape(64, 64)
o = torch.empty(64, 64, device="cuda")
dot[(1,)](m, m, o, N=64)
print("dot", o.sum().item(), (o - m.float() @ m.float()).abs().max().item())
