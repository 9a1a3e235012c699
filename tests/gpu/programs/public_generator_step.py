"""A generator yields batches, a nested function does the step, results travel in a dataclass."""

import sys
from dataclasses import dataclass

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Result:
    loss: torch.Tensor
    accuracy: torch.Tensor


def batches(count):
    xs = torch.randn(16, 32, 64, device=device)
    ys = torch.randint(0, 10, (16, 32), device=device)
    for i in range(count):
        yield Batch(xs[i % 16].clone(), ys[i % 16].clone())


def make_step(model, optimizer):
    def step(batch):
        optimizer.zero_grad()
        logits = model(batch.x)
        loss = nn.functional.cross_entropy(logits, batch.y)
        loss.backward()
        optimizer.step()
        return Result(loss.detach(), (logits.argmax(-1) == batch.y).float().mean())

    return step


layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8)]
model = nn.Sequential(*layers, nn.Linear(64, 10)).to(device)
step = make_step(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9))
seen = torch.zeros((), device=device)
for batch in batches(steps):
    result = step(batch)  # <- first
    seen += result.accuracy  # <- last

print(f"loss {result.loss.item():.6f} accuracy {seen.item() / steps:.4f}")
