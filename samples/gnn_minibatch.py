"""Graph regression on mini-batches of small graphs of different sizes: every step has shapes of its own."""

import argparse
import random
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class GIN(nn.Module):
    def __init__(self, features=16, hidden=64, layers=3):
        super().__init__()
        sizes = [features] + [hidden] * layers
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(a, hidden), nn.ReLU(), nn.Linear(hidden, b)) for a, b in pairwise(sizes)
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, source, target, graph, graphs):
        for layer in self.mlps:
            message = torch.zeros_like(x).index_add(0, target, x[source])
            x = F.relu(layer(x + message))
        pooled = x.new_zeros(graphs, x.size(1)).index_add(0, graph, x)
        return self.head(pooled).squeeze(-1)


def make_graph(rng):
    """Node features, edges and a target of a random molecule-like graph, on the CPU."""
    nodes = rng.randint(8, 30)
    source = torch.arange(1, nodes)
    target = torch.tensor([rng.randrange(i) for i in range(1, nodes)])
    x = torch.randn(nodes, 16)
    return x, torch.cat([source, target]), torch.cat([target, source]), x.mean()


def collate(samples, device):
    offsets, total = [], 0
    for x, *_ in samples:
        offsets.append(total)
        total += len(x)
    x = torch.cat([s[0] for s in samples])
    source = torch.cat([s[1] + o for s, o in zip(samples, offsets, strict=True)])
    target = torch.cat([s[2] + o for s, o in zip(samples, offsets, strict=True)])
    graph = torch.cat([torch.full((len(s[0]),), i) for i, s in enumerate(samples)])
    y = torch.stack([s[3] for s in samples])
    return [t.to(device) for t in (x, source, target, graph, y)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graphs = [make_graph(rng) for _ in range(512)]
    model = GIN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    marks = []
    for step in range(args.steps):
        x, source, target, graph, y = collate(rng.sample(graphs, args.batch), device)
        loss = F.mse_loss(model(x, source, target, graph, args.batch), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            print(f"step {step:4d}  nodes {len(x)}  loss {loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
