"""A few large matrix products a step: the GPU is busy all the time, a graph has nothing to remove."""

import sys

import torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
size = 4096 if device == "cuda" else 128
weights = [torch.randn(size, size, device=device) / size**0.5 for _ in range(4)]
x = torch.randn(size, size, device=device)

for _ in range(steps):
    h = x  # <- first
    for w in weights:
        h = torch.tanh(h @ w)
    score = h.mean()  # <- last

print(f"score {score.item():.8f}")
