"""A diffusion sampler whose timestep embedding is built on the CPU at every step, as older U-Nets do."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, dim):
    freqs = torch.exp(-9.21 * torch.arange(dim // 2) / (dim // 2))  # born on the CPU
    angles = t[:, None].float() * freqs.to(t.device)[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, channels, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.emb = nn.Linear(emb, channels)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(emb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, channels=64, blocks=4, emb=128):
        super().__init__()
        self.emb_dim = emb
        self.embed = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.ModuleList(ResBlock(channels, emb) for _ in range(blocks))
        self.up = nn.ModuleList(ResBlock(channels, emb) for _ in range(blocks))
        self.leave = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x, t):
        emb = self.embed(timestep_embedding(t, self.emb_dim))
        h, skips = self.enter(x), []
        for block in self.down:
            h = block(h, emb)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2.0) + skips.pop()
            h = block(h, emb)
        return self.leave(h)


@torch.no_grad()
def sample(model, x, steps, log_every):
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, device=x.device), 0)
    marks = []
    for i in reversed(range(steps)):
        t = torch.full((x.size(0),), i, device=x.device)
        noise = model(x, t)
        a, b = alphas[i], alphas[max(i - 1, 0)]
        x0 = ((x - (1 - a).sqrt() * noise) / a.sqrt()).clamp(-1, 1)
        x = b.sqrt() * x0 + (1 - b).sqrt() * noise
        if i % log_every == 0:
            print(f"t {i:4d}  std {x.std().item():.6f}", flush=True)
            marks.append(time.perf_counter())
    return x, marks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = UNet().to(device).eval()
    image, marks = sample(model, torch.randn(args.batch, 3, 64, 64, device=device), args.steps, args.log_every)
    print(f"final std {image.std().item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
