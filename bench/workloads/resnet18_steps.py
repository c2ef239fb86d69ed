"""Steps of training ResNet-18, that of tests/clients, in PyTorch: as many as are asked for."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "clients" / "networks"))
import torch
from test_networks import BATCH, DEVICE, images, resnet18  # type: ignore[import-not-found]
from torch.nn import functional

network, given, wanted = resnet18(), images(), torch.arange(BATCH, device=DEVICE)
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = functional.cross_entropy(network(given), wanted)
    loss.backward()
    optimizer.step()
    loss.item()
print(torch.__version__)
