"""A script that only configures a Trainer; worker processes and a pinning thread feed the loop in trainer_module.py."""

import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset
from trainer_module import Trainer


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
    layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)) for _ in range(12)]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    loss = Trainer(model, dataset, device).fit(steps)
    print(f"final loss {loss:.6f}")


if __name__ == "__main__":
    main()
