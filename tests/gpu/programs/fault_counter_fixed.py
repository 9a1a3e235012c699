"""fault_counter.py with the counter on the GPU."""

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
count = torch.zeros((), device=device)
mean = torch.zeros(8, device=device)

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad():
        h = model(x)  # <- first
        count.add_(1)
        mean.add_((h.mean(0) - mean) / count)  # <- last
print(f"count {count.item():.0f} mean {mean.sum().item():.6f}")
