"""IREE: tensor programs compiled to PTX and run by its CUDA driver, whose command buffers become graphs,
against the same programs on the CPU. Each runs several times: what is launched again finds new memory.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np
import pytest

RUNS = 3

PROGRAMS = {
    "matmul": """
func.func @main(%a: tensor<100x70xf32>, %b: tensor<70x50xf32>) -> tensor<100x50xf32> {
  %0 = stablehlo.dot %a, %b : (tensor<100x70xf32>, tensor<70x50xf32>) -> tensor<100x50xf32>
  return %0 : tensor<100x50xf32>
}""",
    "tensor_cores": """
func.func @main(%a: tensor<128x128xf32>, %b: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %x = stablehlo.convert %a : (tensor<128x128xf32>) -> tensor<128x128xf16>
  %y = stablehlo.convert %b : (tensor<128x128xf32>) -> tensor<128x128xf16>
  %0 = stablehlo.dot_general %x, %y, contracting_dims=[1]x[0]
      : (tensor<128x128xf16>, tensor<128x128xf16>) -> tensor<128x128xf32>
  return %0 : tensor<128x128xf32>
}""",
    "softmax": """
func.func @main(%a: tensor<16x200xf32>) -> tensor<16x200xf32> {
  %m = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%a init: %m) applies stablehlo.maximum across dimensions = [1]
      : (tensor<16x200xf32>, tensor<f32>) -> tensor<16xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<16xf32>) -> tensor<16x200xf32>
  %2 = stablehlo.subtract %a, %1 : tensor<16x200xf32>
  %3 = stablehlo.exponential %2 : tensor<16x200xf32>
  %4 = stablehlo.reduce(%3 init: %z) applies stablehlo.add across dimensions = [1]
      : (tensor<16x200xf32>, tensor<f32>) -> tensor<16xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<16xf32>) -> tensor<16x200xf32>
  %6 = stablehlo.divide %3, %5 : tensor<16x200xf32>
  return %6 : tensor<16x200xf32>
}""",
    "convolution": """
func.func @main(%x: tensor<2x20x20x3xf32>, %k: tensor<3x3x3x8xf32>) -> tensor<2x20x20x8xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b,0,1,f]x[0,1,i,o]->[b,0,1,f],
      window = {stride=[1,1], pad=[[1,1],[1,1]]} {batch_group_count=1:i64, feature_group_count=1:i64}
      : (tensor<2x20x20x3xf32>, tensor<3x3x3x8xf32>) -> tensor<2x20x20x8xf32>
  return %0 : tensor<2x20x20x8xf32>
}""",
    "sort": """
func.func @main(%x: tensor<4x50xf32>) -> tensor<4x50xf32> {
  %0 = "stablehlo.sort"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<4x50xf32>) -> tensor<4x50xf32>
  return %0 : tensor<4x50xf32>
}""",
    "loop": """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<12> : tensor<i32>
  %o = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<64xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %o : tensor<i32>
      %s = stablehlo.sine %v : tensor<64xf32>
      %w = stablehlo.add %s, %x : tensor<64xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<64xf32>
    }
  return %0#1 : tensor<64xf32>
}""",
    "dynamic": """
func.func @main(%a: tensor<?x24xf32>, %b: tensor<24x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x24xf32>
  %n = tensor.dim %b, %c1 : tensor<24x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x24xf32>, tensor<24x?xf32>)
      outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}""",
}

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "matmul": [(100, 70), (70, 50)],
    "tensor_cores": [(128, 128), (128, 128)],
    "softmax": [(16, 200)],
    "convolution": [(2, 20, 20, 3), (3, 3, 3, 8)],
    "sort": [(4, 50)],
    "loop": [(64,)],
    "dynamic": [(33, 24), (24, 45)],
}

CUDA = ("cuda", "cuda", "--iree-cuda-target=sm_80")
CPU = ("local-task", "llvm-cpu", "--iree-llvmcpu-target-cpu=generic")


@cache
def driver(name: str) -> runtime.Config:
    return runtime.Config(name)


def run(name: str, device: str, backend: str, target: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    text = PROGRAMS[name]
    kind = "stablehlo" if "stablehlo." in text else "none"
    code = compiler.compile_str(text, target_backends=[backend], input_type=kind, extra_args=[target])
    context = runtime.SystemContext(config=driver(device))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    main: Any = context.modules.module["main"]
    return [np.asarray(main(*(each * (turn + 1) for each in inputs))) for turn in range(RUNS)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES[name]]
    for ours, reference in zip(run(name, *CUDA, inputs), run(name, *CPU, inputs), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-3, atol=1e-3)
