"""Fine-tune a ViT-small with AdamW(foreach=False): the optimizer launches a dozen kernels for each parameter."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from models import ViT

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--image", type=int, default=224)
parser.add_argument("--fused", action="store_true", help="the cheaper cure: one kernel for all parameters")
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = ViT(image=args.image, dim=384, heads=6, classes=100).to(device)
how = {"fused": True} if args.fused else {"foreach": False}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
images = torch.randn(4, args.batch, 3, args.image, args.image, device=device)
labels = torch.randint(0, 100, (4, args.batch), device=device)


def train_step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    return loss.detach()


marks = []
for step in range(args.steps):
    x, y = images[step % 4], labels[step % 4]
    loss = train_step(x, y)
    if step % args.log_every == 0:
        print(f"step {step:4d}  loss {loss.item():.6f}", flush=True)
        marks.append(time.perf_counter())

print(f"final loss {loss.item():.6f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
