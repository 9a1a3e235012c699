"""if/else inside the step on options that do not change while it runs, and a call that returns early."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int, nargs="?", default=40)
parser.add_argument("--loss", choices=["mse", "huber"], default="huber")
parser.add_argument("--noise", type=float, default=0.1)
parser.add_argument("--ema", type=float, default=0.99)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(*layers, nn.Linear(64, 8)).to(device)
shadow = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
data = torch.randn(16, 32, 64, device=device)
target = torch.randn(16, 32, 8, device=device)


def augment(x):
    if args.noise == 0:
        return x
    return x + args.noise * torch.randn_like(x)


for step in range(args.steps):
    x, y = data[step % 16], target[step % 16]
    optimizer.zero_grad()  # <- first
    output = model(augment(x))
    if args.loss == "huber":
        loss = F.huber_loss(output, y)
    else:
        loss = F.mse_loss(output, y)
    loss.backward()
    optimizer.step()
    if args.ema:
        with torch.no_grad():
            for s, p in zip(shadow, model.parameters(), strict=True):
                s.lerp_(p, 1 - args.ema)  # <- last

print(f"loss {loss.item():.6f} shadow {sum(s.abs().sum().item() for s in shadow):.6f}")
