"""The span reuses weights that autocast has cast and cached just before it: eager casts them anew in every step."""

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

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        first = model(x)  # <- culprit
        total += first.float().mean().item()
        second = model(x.flip(1))  # <- first
        score = (second.float() - y).pow(2).mean()  # <- last
        total += score.item()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.99)

print(f"total {total:.6f}")
