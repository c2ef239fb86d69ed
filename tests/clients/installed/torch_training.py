"""PyTorch: a residual network is trained for some seconds, in a way that gives the same numbers each time."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
import torchvision

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
network = torchvision.models.resnet18(num_classes=10).cuda().train()
optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
images = torch.randn(512, 3, 64, 64).pin_memory()
labels = torch.randint(0, 10, (512,)).pin_memory()
side = torch.cuda.Stream()
for epoch in range(30):
    total = torch.zeros((), device="cuda")
    for at in range(0, 512, 64):
        with torch.cuda.stream(side):
            x, y = (each[at : at + 64].to("cuda", non_blocking=True) for each in (images, labels))
        torch.cuda.current_stream().wait_stream(side)
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimiser.step()
        x.record_stream(torch.cuda.current_stream())
        total += loss.detach()
    print(epoch, repr(total.item()))
print("weights", repr(sum(each.double().sum().item() for each in network.parameters())))
