"""Steps of models as people run them in PyTorch, with weights that nobody has trained; seconds of each."""

import time
from collections.abc import Callable

import torch
import torchvision
from transformers import GPT2Config, GPT2LMHeadModel

BEST_OF = 3


def step(name: str, times: int, work: Callable[[], object]) -> None:
    """Says how long one of so many steps takes, the device's work included: the best round."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(BEST_OF):
        began = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - began) / times)
    print(f"measured {name} {min(seconds):.9g}", flush=True)


torch.manual_seed(1)
device = torch.device("cuda")

network = torchvision.models.resnet50().to(device).train()
images = torch.randn(64, 3, 224, 224, device=device)
labels = torch.randint(0, 1000, (64,), device=device)
optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)


def train() -> None:
    """One training step, in bfloat16 where that is safe."""
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    optimiser.step()


step("resnet50_training_64", 10, train)

network.eval()
one = torch.randn(1, 3, 224, 224, device=device)
many = torch.randn(32, 3, 224, 224, device=device)
with torch.inference_mode():
    step("resnet50_inference_1", 30, lambda: network(one).cpu())
    step("resnet50_inference_32", 10, lambda: network(many).cpu())

language = GPT2LMHeadModel(GPT2Config()).to(device).to(torch.bfloat16).eval()
prompt = torch.randint(0, 50000, (1, 64), device=device)
with torch.inference_mode():
    step(
        "gpt2_decode_32_tokens",
        2,
        lambda: language.generate(
            prompt, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0
        ),
    )

a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
step("matmul_8192_bf16", 20, lambda: a @ b)

pinned = torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
pageable = torch.empty(256 << 20, dtype=torch.uint8)
target = torch.empty(256 << 20, dtype=torch.uint8, device=device)
step("pinned_to_device_256m", 4, lambda: target.copy_(pinned, non_blocking=True))
step("device_to_pinned_256m", 4, lambda: pinned.copy_(target, non_blocking=True))
step("pageable_to_device_256m", 4, lambda: target.copy_(pageable))
