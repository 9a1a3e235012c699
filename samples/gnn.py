"""Full-batch GCN on a fixed random graph, normalised once; as Kipf's example, with index tensors for the split."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class GCNConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, adjacency):
        return adjacency @ self.linear(x) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes, layers=4):
        super().__init__()
        sizes = [features] + [hidden] * (layers - 1) + [classes]
        self.convs = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(sizes))

    def forward(self, x, adjacency):
        for conv in self.convs[:-1]:
            x = F.relu(conv(x, adjacency))
            x = F.dropout(x, 0.5, self.training)
        return F.log_softmax(self.convs[-1](x, adjacency), dim=1)


def random_graph(nodes, degree, device):
    """Symmetric D^-1/2 (A + I) D^-1/2 of a random graph, dense: 2000 nodes fit easily."""
    edges = torch.randint(0, nodes, (2, nodes * degree), device=device)
    adjacency = torch.zeros(nodes, nodes, device=device)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency = torch.maximum(adjacency, adjacency.T)
    adjacency.fill_diagonal_(1.0)
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale[None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--nodes", "--batch", type=int, default=2000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    adjacency = random_graph(args.nodes, 4, device)
    x = torch.randn(args.nodes, 128, device=device)
    y = torch.randint(0, 7, (args.nodes,), device=device)
    train = torch.randperm(args.nodes, device=device)[: args.nodes // 2]
    model = GCN(128, 64, 7).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    marks = []
    for epoch in range(args.steps):
        model.train()
        optimizer.zero_grad()
        out = model(x, adjacency)
        loss = F.nll_loss(out[train], y[train])
        loss.backward()
        optimizer.step()
        if epoch % args.log_every == 0:
            print(f"epoch {epoch:4d}  loss {loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
