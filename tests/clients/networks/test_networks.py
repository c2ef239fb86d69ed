"""PyTorch on a device that runs no kernel: every call is taken, and what is only copied is what it was."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

DEVICE = torch.device("cuda")
BATCH = 4


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and the way around them."""

    def __init__(self, channels: int, wanted: int) -> None:
        super().__init__()
        stride = 1 if channels == wanted else 2
        self.body = nn.Sequential(
            nn.Conv2d(channels, wanted, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wanted),
            nn.ReLU(inplace=True),
            nn.Conv2d(wanted, wanted, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wanted),
        )
        around = nn.Sequential(nn.Conv2d(channels, wanted, 1, stride, bias=False), nn.BatchNorm2d(wanted))
        self.around = nn.Identity() if stride == 1 else around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.around(x))


def resnet18() -> nn.Module:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(a, b) for a, b in pairwise(widths)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*stem, *blocks, *end).to(DEVICE)


def images() -> torch.Tensor:
    return torch.randn(BATCH, 3, 64, 64).pin_memory().to(DEVICE, non_blocking=True)


def train(network: nn.Module, given: torch.Tensor, wanted: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(network.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(given), wanted)
        loss.backward()
        optimizer.step()
        assert isinstance(loss.item(), float)


def test_copies() -> None:
    there = torch.arange(1 << 20).to(DEVICE)
    other = torch.empty_like(there)
    other.copy_(there)
    assert torch.equal(other.cpu(), torch.arange(1 << 20))


def test_training() -> None:
    train(resnet18(), images(), torch.arange(BATCH, device=DEVICE))


def test_inference() -> None:
    network = resnet18().eval()
    with torch.inference_mode():
        assert network(images()).cpu().shape == (BATCH, 1000)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_less_precision(kind: torch.dtype) -> None:
    with torch.autocast("cuda", dtype=kind):
        train(resnet18(), images(), torch.arange(BATCH, device=DEVICE))


def test_a_graph() -> None:
    network, given = resnet18().eval(), images()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.inference_mode():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            network(given)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            answer = network(given)
    for _ in range(3):
        graph.replay()
    assert answer.cpu().shape == (BATCH, 1000)


def test_streams_and_events() -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(streams[0]):
        begin.record()
        square = torch.ones(256, 256, device=DEVICE) @ torch.ones(256, 256, device=DEVICE)
        end.record()
    streams[1].wait_event(end)
    with torch.cuda.stream(streams[1]):
        square = square @ square
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) >= 0


def test_attention() -> None:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    network = nn.Sequential(nn.Embedding(100, 64), layer, nn.Flatten(), nn.Linear(64 * 16, 10)).to(DEVICE)
    train(
        network, torch.zeros(BATCH, 16, dtype=torch.long, device=DEVICE), torch.arange(BATCH, device=DEVICE)
    )


def test_a_recurrent_network() -> None:
    network = nn.LSTM(32, 64, num_layers=2).to(DEVICE)
    answer, _ = network(torch.ones(10, BATCH, 32, device=DEVICE))
    answer.sum().backward()
    assert network.weight_hh_l0.grad.cpu().shape == (256, 64)


def test_memory_that_is_full() -> None:
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(total + 1, dtype=torch.uint8, device=DEVICE)
    assert torch.zeros(10, device=DEVICE).numel() == 10
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= torch.cuda.memory_reserved()


def test_collectives() -> None:
    """NCCL makes a communicator, for which it asks NVML of each device and itself."""
    given = torch.zeros(64, device=DEVICE)
    torch.cuda.nccl.all_reduce([given])
    torch.cuda.synchronize()
    assert not given.cpu().any()
