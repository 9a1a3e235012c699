"""A GPT that learns to sort digits, trained through the Trainer of trainer_lib.py with worker processes and pinning."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from models import GPT
from torch.utils.data import Dataset
from trainer_lib import Trainer


class SortDataset(Dataset):
    """Sequences of `length` digits followed by the same digits sorted; the loss counts the sorted half."""

    def __init__(self, length=6, digits=3, size=4096):
        self.length = length
        rng = torch.Generator().manual_seed(0)
        self.numbers = torch.randint(0, digits, (size, length), generator=rng)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        inp = self.numbers[index]
        cat = torch.cat((inp, torch.sort(inp)[0]), dim=0)
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", dest="max_iters", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--grad-norm-clip", type=float, default=1.0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=3407)
    config = parser.parse_args()

    torch.manual_seed(config.seed)
    dataset = SortDataset()
    trainer = Trainer(config, GPT(vocab=3, block_size=11), dataset)
    marks = []

    def batch_end_callback(trainer):
        if trainer.iter_num % config.log_every == 0:
            print(f"iter {trainer.iter_num:4d}  loss {trainer.loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    trainer.add_callback("on_batch_end", batch_end_callback)
    trainer.run()

    print(f"final loss {trainer.loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / config.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
