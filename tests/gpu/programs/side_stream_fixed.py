"""side_stream_blocked.py with the side stream joined."""

import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(*layers, nn.Linear(64, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = torch.randn(16, 32, 64, device=device)
target = torch.randn(16, 32, 8, device=device)
statistics = torch.zeros(32, 8, device=device)
side = torch.cuda.Stream()

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    optimizer.zero_grad()  # <- first
    output = model(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        statistics.mul_(0.9).add_(output.detach(), alpha=0.1)
        output.record_stream(side)
    loss = (output - y).pow(2).mean()
    loss.backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.step()  # <- last

torch.cuda.synchronize()
print(f"loss {loss.item():.6f} statistics {statistics.sum().item():.6f}")
