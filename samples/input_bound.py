"""Image training fed by a DataLoader that makes and augments pictures on the CPU: the GPU waits for its input."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class FakeData(Dataset):
    """Random pictures, made anew for every item, then flipped, blurred and normalised like a real pipeline's."""

    def __init__(self, length, size):
        self.length, self.size = length, size
        self.mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        self.std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, self.size + 32, self.size + 32), generator=rng).float() / 255
        top, left = torch.randint(0, 32, (2,), generator=rng).tolist()
        image = image[:, top : top + self.size, left : left + self.size]
        for _ in range(3):
            image = F.avg_pool2d(image, 5, 1, 2)
        if index % 2:
            image = image.flip(2)
        return (image - self.mean) / self.std, index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = FakeData(args.steps * args.batch, args.size)
    loader = DataLoader(
        dataset, args.batch, shuffle=True, num_workers=args.workers, pin_memory=device == "cuda", drop_last=True
    )

    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, 4, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    marks = []
    for step, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        loss = F.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            print(f"step {step:4d}  loss {loss.item():.6f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.6f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
