"""An LSTMCell unrolled by hand, after PyTorch's time-sequence example: hundreds of tiny kernels for each prediction."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn


class Sequence(nn.Module):
    def __init__(self, hidden=51):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), self.hidden, device=input.device)
        c_t = torch.zeros(input.size(0), self.hidden, device=input.device)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--future", type=int, default=16)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Sequence().to(device).eval()
    phase = torch.rand(args.batch, 1, device=device) * 6.28
    time_axis = torch.arange(args.length, device=device)[None] / 20.0

    marks = []
    with torch.no_grad():
        for step in range(args.steps):
            wave = torch.sin(time_axis + phase + 0.1 * step)
            prediction = model(wave, future=args.future)
            if step % args.log_every == 0:
                print(f"step {step:4d}  mean {prediction.mean().item():.6f}", flush=True)
                marks.append(time.perf_counter())

    print(f"final mean {prediction.mean().item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
