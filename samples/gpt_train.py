"""Train a tiny GPT to add two-digit numbers, after minGPT's adder: 3 layers, 48 wide, AdamW, gradient clipping."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from models import GPT
from torch import nn


def make_batch(batch, digits, device):
    """Digits of a, b and a + b (the sum reversed) as one sequence; the loss counts the sum's digits only."""
    a = torch.randint(0, 10**digits, (batch,), device=device)
    b = torch.randint(0, 10**digits, (batch,), device=device)
    c = a + b
    columns = [a // 10**i % 10 for i in reversed(range(digits))]
    columns += [b // 10**i % 10 for i in reversed(range(digits))]
    columns += [c // 10**i % 10 for i in range(digits + 1)]
    sequence = torch.stack(columns, dim=1)
    x, y = sequence[:, :-1], sequence[:, 1:].clone()
    y[:, : 2 * digits - 1] = -1
    return x, y


def configure_optimizer(model, lr, weight_decay):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--digits", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=3407)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT(vocab=10, block_size=3 * args.digits).to(device)
    optimizer = configure_optimizer(model, args.lr, weight_decay=0.1)
    model.train()

    marks = []
    for step in range(args.steps):
        x, y = make_batch(args.batch, args.digits, device)
        logits, loss = model(x, y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        if step % args.log_every == 0:
            print(f"step {step:4d}  loss {loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    accuracy = (logits.argmax(-1) == y)[y >= 0].float().mean().item()
    print(f"final loss {loss.item():.6f}  digit accuracy {accuracy:.3f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
