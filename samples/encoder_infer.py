"""ViT-tiny, one image at a time, as a service would run it: a method called for each request."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from models import ViT


class Classifier:
    def __init__(self, device):
        self.device = device
        self.model = ViT().to(device, torch.float16 if device == "cuda" else torch.float32).eval()
        self.dtype = next(self.model.parameters()).dtype

    @torch.no_grad()
    def __call__(self, image):
        logits = self.model(image.to(self.dtype))
        return logits.softmax(-1).topk(5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    classifier = Classifier(device)
    requests = torch.rand(8, args.batch, 3, 224, 224, device=device)

    marks = []
    for step in range(args.steps):
        image = requests[step % 8]
        scores, labels = classifier(image)
        if step % args.log_every == 0:
            print(f"request {step:4d}  label {labels[0, 0].item()}  score {scores[0, 0].item():.5f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final score {scores[0, 0].item():.5f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
