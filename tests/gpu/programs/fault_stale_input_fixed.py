"""fault_stale_input.py with the tensor filled in place."""

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
bank = {"context": torch.zeros(64, device=device)}
total = 0.0


def forward(x):
    return model(x + bank["context"])


for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    bank["context"].copy_(data[(step + 1) % 16].mean(0))
    with torch.no_grad():
        score = forward(x)  # <- first
        score = score - y  # <- last
    total += score.abs().mean().item()

print(f"total {total:.6f}")
