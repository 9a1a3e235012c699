"""A step that prints its loss tensor before the backward pass."""

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

for step in range(steps):
    x, y = data[step % 16], target[step % 16]

    optimizer.zero_grad()  # <- first
    loss = (model(x) - y).pow(2).mean()
    print("loss", loss)  # <- culprit
    loss.backward()
    optimizer.step()  # <- last

print(f"loss {loss.item():.6f} weights {sum(p.abs().sum().item() for p in model.parameters()):.6f}")
