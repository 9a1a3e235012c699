"""Every step's output is appended to a list in the span: eager keeps one tensor a step."""

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

kept = []
for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    with torch.no_grad():
        h = model(x)  # <- first
        out = h / h.norm(dim=1, keepdim=True)
        kept.append(out)  # <- culprit, last
every = torch.stack(kept)
print(f"kept {len(kept)} sum {every.sum().item():.6f} spread {every.std(0).mean().item():.6f}")
