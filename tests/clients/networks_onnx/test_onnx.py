"""ONNX Runtime on a device that runs no kernel: every call is taken, and copies are what they were."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

onnxruntime.preload_dlls()
GIVEN = np.ones((4, 3, 32, 32), np.float32)


def constant(name: str, *shape: int) -> object:
    return numpy_helper.from_array(np.full(shape, 0.1, np.float32), name)


def network() -> bytes:
    """Convolutions, pools, a normalisation and a product."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        make("Relu", ["c1"], ["r1"]),
        make("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1] * 4),
        make("BatchNormalization", ["c2", "s", "b2", "b2", "s"], ["n2"]),
        make("GlobalAveragePool", ["n2"], ["g"]),
        make("Flatten", ["g"], ["f"]),
        make("Gemm", ["f", "w3", "b3"], ["l"], transB=1),
        make("Softmax", ["l"], ["y"]),
    ]
    constants = [constant("w1", 8, 3, 3, 3), constant("b1", 8), constant("w2", 16, 8, 3, 3)]
    constants += [constant("b2", 16), constant("s", 16), constant("w3", 10, 16), constant("b3", 10)]
    return model(nodes, ["N", 3, 32, 32], constants)


def model(nodes: list[object], shape: list[int | str], constants: list[object]) -> bytes:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    wanted = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "n", [given], [wanted], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    return bytes(made.SerializeToString())


def session(content: bytes, **options: str) -> onnxruntime.InferenceSession:
    found = onnxruntime.InferenceSession(content, providers=[("CUDAExecutionProvider", options)])
    assert found.get_providers()[0] == "CUDAExecutionProvider"
    return found


@pytest.mark.parametrize("count", [1, 4, 7])
def test_inference(count: int) -> None:
    (answer,) = session(network()).run(None, {"x": np.ones((count, 3, 32, 32), np.float32)})
    assert answer.shape == (count, 10)


@pytest.mark.parametrize(
    "options",
    [
        {"cudnn_conv_algo_search": "EXHAUSTIVE", "use_tf32": "0"},
        {"arena_extend_strategy": "kSameAsRequested", "gpu_mem_limit": str(1 << 28)},
    ],
    ids=["search", "arena"],
)
def test_options(options: dict[str, str]) -> None:
    (answer,) = session(network(), **options).run(None, {"x": GIVEN})
    assert answer.shape == (4, 10)


@pytest.mark.parametrize("graph", ["0", "1"])
def test_what_stays_on_the_device(graph: str) -> None:
    network_, given = session(network(), enable_cuda_graph=graph), GIVEN.copy()
    there = onnxruntime.OrtValue.ortvalue_from_numpy(given, "cuda", 0)
    answer = onnxruntime.OrtValue.ortvalue_from_shape_and_type((4, 10), np.float32, "cuda", 0)
    binding = network_.io_binding()
    binding.bind_ortvalue_input("x", there)
    binding.bind_ortvalue_output("y", answer)
    for _ in range(4):
        network_.run_with_iobinding(binding)
        given += 1
        there.update_inplace(given)
        assert (there.numpy() == given).all()
    assert answer.numpy().shape == (4, 10)


def test_threads() -> None:
    network_ = session(network())
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: network_.run(None, {"x": GIVEN})[0], range(20)))
    assert {answer.shape for answer in answers} == {(4, 10)}


@pytest.mark.parametrize("name", ["Exp", "Tanh", "Erf", "Sqrt", "Sigmoid", "Transpose"])
def test_operators(name: str) -> None:
    content = model([helper.make_node(name, ["x"], ["y"])], [4, 8], [])
    (answer,) = session(content).run(None, {"x": np.ones((4, 8), np.float32)})
    assert answer.size == 32
