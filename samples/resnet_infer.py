"""ResNet-50 inference: launch-bound at --batch 1, GPU-bound at --batch 256."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from models import ResNet

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float16 if device == "cuda" else torch.float32

model = ResNet().to(device, dtype, memory_format=torch.channels_last).eval()
frames = torch.randn(4, args.batch, 3, args.size, args.size, device=device, dtype=dtype)

marks = []
with torch.inference_mode():
    for step in range(args.steps):
        image = frames[step % 4].contiguous(memory_format=torch.channels_last)
        scores = model(image)
        best = scores.float().softmax(-1).amax(-1)
        if step % args.log_every == 0:
            print(f"step {step:4d}  confidence {best.mean().item():.6f}", flush=True)
            marks.append(time.perf_counter())

print(f"final confidence {best.mean().item():.6f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
