"""Train a 6-layer encoder under bf16 autocast with AdamW and a cosine schedule."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--seq", type=int, default=64)
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--constant-lr", action="store_true", help="no learning-rate schedule")
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"

layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True, norm_first=True)
model = nn.ModuleDict(
    {
        "embed": nn.Embedding(512, 256),
        "encoder": nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
        "head": nn.Linear(256, 512),
    }
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = None if args.constant_lr else torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

tokens = torch.randint(0, 512, (16, args.batch, args.seq), device=device)

marks = []
for step in range(args.steps):
    batch = tokens[step % 16]
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model["head"](model["encoder"](model["embed"](batch)))
        loss = F.cross_entropy(logits.flatten(0, 1), batch.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if scheduler:
        scheduler.step()
    if step % args.log_every == 0:
        print(f"step {step:4d}  loss {loss.item():.6f}  lr {optimizer.param_groups[0]['lr']:.2e}", flush=True)
        marks.append(time.perf_counter())

print(f"final loss {loss.item():.6f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
