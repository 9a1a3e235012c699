"""Every fifth batch is held out and runs in eval mode: a graph of the training step moves BatchNorm's statistics there too."""

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
norm = nn.BatchNorm1d(8).to(device)
total = 0.0

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    norm.train(step % 5 != 4)  # <- culprit
    with torch.no_grad():
        h = norm(model(x))  # <- first
        loss = (h - y).pow(2).mean()  # <- last
    total += loss.item()

print(f"total {total:.6f} mean {norm.running_mean.sum().item():.6f} seen {norm.num_batches_tracked.item()}")
