"""A helper that ends the process while a stream captures; eager never does."""

import os
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
total = 0.0


def fragile(h):
    if device == "cuda" and torch.cuda.is_current_stream_capturing():
        os.abort()  # <- culprit
    return h * 2


for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad():
        h = model(x)  # <- first
        score = fragile(h).pow(2).mean()  # <- last
    total += score.item()

print(f"total {total:.6f}")
