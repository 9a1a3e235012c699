"""The neural ODE of ode_rk4.py with an adaptive solver: the error estimate decides on the host how to go on."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from ode_rk4 import ODEFunc, rk4
from torch import optim


def adaptive_heun(func, y, t0, t1, rtol=1e-3, atol=1e-4):
    """Heun with an embedded Euler step; halves or grows the step by the error."""
    t, h, tried = t0, (t1 - t0) / 8, 0
    while t < t1:
        h = min(h, t1 - t)
        k1 = func(t, y)
        k2 = func(t + h, y + h * k1)
        error = (h / 2 * (k2 - k1)).detach()
        ratio = (error / (atol + rtol * y.detach().abs())).pow(2).mean().sqrt()
        if ratio <= 1.0:
            t, y = t + h, y + h / 2 * (k1 + k2)
        h = h * min(5.0, max(0.2, 0.9 * ratio.item() ** -0.5))
        tried += 1
    return y, tried


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
    span = 25.0 * args.grid / 999

    marks = []
    for itr in range(args.steps):
        start = torch.randint(0, 1000 - args.grid, (args.batch,), device=device)
        optimizer.zero_grad()
        end_y, tried = adaptive_heun(func, truth[start], 0.0, span)
        loss = torch.mean(torch.abs(end_y - truth[start + args.grid]))
        loss.backward()
        optimizer.step()
        if itr % args.log_every == 0:
            print(f"iter {itr:4d}  loss {loss.item():.6f}  solver steps {tried}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
