"""fault_attribute.py with the average updated in place."""

import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(*layers, nn.Linear(64, 8)).to(device)
data = torch.randn(16, 32, 64, device=device)
target = torch.randn(16, 32, 8, device=device)


class Smoothed(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.register_buffer("average", torch.zeros(8, device=device))

    def forward(self, x):
        h = self.body(x)
        self.average.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return h - self.average


net = Smoothed(model)

total = 0.0
for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad():
        out = net(x)  # <- first
        score = out.pow(2).mean()  # <- last
    total += score.item()
print(f"total {total:.6f} average {net.average.sum().item():.6f}")
