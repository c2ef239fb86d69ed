"""PyTorch: matrices, convolutions, reductions, sorts, streams, events, graphs."""

import torch

torch.manual_seed(1)
print(torch.cuda.get_device_name(0), torch.version.cuda)
a, b = (torch.randint(-8, 8, (1024, 1024), device="cuda").float() for _ in range(2))
print("matmul", (a @ b).sum().item(), (a.half() @ b.half()).float().sum().item())
x = torch.randn(8, 16, 64, 64, device="cuda")
w = torch.randn(32, 16, 3, 3, device="cuda")
print("conv", round(torch.nn.functional.conv2d(x, w).double().sum().item(), 2))
v = torch.randint(0, 1 << 30, (1 << 20,), device="cuda")
print("sort", v.sort().values[::100000].tolist(), v.cumsum(0)[-1].item(), v.unique().numel())
side = torch.cuda.Stream()
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
with torch.cuda.stream(side):
    begin.record()
    c = a + 1
    end.record()
side.synchronize()
print("events", begin.elapsed_time(end) >= 0, c.sum().item())
graph, inside = torch.cuda.CUDAGraph(), torch.zeros(1000, device="cuda")
with torch.cuda.graph(graph):
    inside += 1
for _ in range(10):
    graph.replay()
print("graph", inside.sum().item())
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
data, wanted = torch.randn(256, 64, device="cuda"), torch.randn(256, 1, device="cuda")
for _ in range(20):
    optimiser.zero_grad()
    loss = torch.nn.functional.mse_loss(net(data), wanted)
    loss.backward()
    optimiser.step()
print("training", round(loss.item(), 4))
print(
    "fft",
    round(torch.fft.fft(data).abs().double().sum().item(), 1),
    "solve",
    torch.linalg.inv(torch.eye(64, device="cuda") * 2).sum().item(),
)
pinned = torch.arange(1 << 20).pin_memory()
print("pinned", pinned.to("cuda", non_blocking=True).sum().item())
