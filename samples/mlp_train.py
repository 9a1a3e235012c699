"""Train a small MLP with Adam. The GPU waits for the CPU most of the time."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from models import mlp

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"

inputs = torch.randn(64 * args.batch, 256, device=device)
labels = torch.randint(0, 10, (64 * args.batch,), device=device)
model = mlp(width=256, depth=8, dropout=0.1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

marks = []
for step in range(args.steps):
    first = step % 64 * args.batch
    x = inputs[first : first + args.batch]
    y = labels[first : first + args.batch]

    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()

    if step % args.log_every == 0:
        print(f"step {step:4d}  loss {loss.item():.6f}", flush=True)
        marks.append(time.perf_counter())  # the line above has waited for the GPU

print(f"final loss {loss.item():.6f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
