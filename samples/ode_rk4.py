"""A neural ODE on a spiral, integrated with fixed-step RK4: many tiny kernels in a fixed order."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn, optim


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, t, y):
        return self.net(y**3)


def rk4(func, y, t0, t1, steps):
    h = (t1 - t0) / steps
    path = [y]
    for k in range(steps):
        t = t0 + k * h
        k1 = func(t, y)
        k2 = func(t + h / 2, y + h / 2 * k1)
        k3 = func(t + h / 2, y + h / 2 * k2)
        k4 = func(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(y)
    return torch.stack(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--grid", type=int, default=10)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    true_a = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], device=device)
    with torch.no_grad():
        truth = rk4(lambda t, y: (y**3) @ true_a, torch.tensor([[2.0, 0.0]], device=device), 0.0, 25.0, 999)[:, 0]

    func = ODEFunc().to(device)
    optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
    offsets = torch.arange(args.grid + 1, device=device)[:, None]

    marks = []
    for itr in range(args.steps):
        start = torch.randint(0, 1000 - args.grid, (args.batch,), device=device)
        batch_y = truth[start + offsets]
        optimizer.zero_grad()
        pred_y = rk4(func, batch_y[0], 0.0, 25.0 * args.grid / 999, args.grid)
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        if itr % args.log_every == 0:
            print(f"iter {itr:4d}  loss {loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
