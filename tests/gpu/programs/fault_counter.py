"""A running mean divides by a Python counter that eager raises in every step."""

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


class Meter:
    count = 0
    mean = torch.zeros(8, device=device)


meter = Meter()

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad():
        h = model(x)  # <- first
        meter.count += 1  # <- culprit
        meter.mean.add_((h.mean(0) - meter.mean) / meter.count)  # <- last
print(f"count {meter.count} mean {meter.mean.sum().item():.6f}")
