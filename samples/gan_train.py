"""Train a small DCGAN on made-up images, as the PyTorch example does: several .item() calls in every step."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn, optim

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--nz", type=int, default=100)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
opt = parser.parse_args()

torch.manual_seed(opt.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nz, w = opt.nz, opt.width


def weights_init(m):
    if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def up(i, o, stride, pad):
    return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]


def down(i, o):
    return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]


netG = nn.Sequential(
    *up(nz, w * 4, 1, 0), *up(w * 4, w * 2, 2, 1), *up(w * 2, w, 2, 1),
    nn.ConvTranspose2d(w, 3, 4, 2, 1, bias=False), nn.Tanh(),
).to(device)  # fmt: skip
netD = nn.Sequential(
    nn.Conv2d(3, w, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    *down(w, w * 2), *down(w * 2, w * 4), nn.Conv2d(w * 4, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
).to(device)  # fmt: skip
netG.apply(weights_init)
netD.apply(weights_init)

criterion = nn.BCELoss()
real_label, fake_label = 1.0, 0.0
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
images = torch.rand(8, opt.batch, 3, 32, 32, device=device) * 2 - 1
dataloader = [(images[i % 8], i) for i in range(opt.steps)]

marks = []
for i, data in enumerate(dataloader):
    # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    real_cpu = data[0].to(device)
    batch_size = real_cpu.size(0)
    label = torch.full((batch_size,), real_label, dtype=real_cpu.dtype, device=device)
    output = netD(real_cpu).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()

    noise = torch.randn(batch_size, nz, 1, 1, device=device)
    fake = netG(noise)
    label.fill_(fake_label)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    D_G_z1 = output.mean().item()
    errD = errD_real + errD_fake
    optimizerD.step()

    # (2) Update G network: maximize log(D(G(z)))
    netG.zero_grad()
    label.fill_(real_label)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    D_G_z2 = output.mean().item()
    optimizerG.step()

    if i % opt.log_every == 0:
        print(
            f"[{i}/{opt.steps}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f} "
            f"D(x): {D_x:.4f} D(G(z)): {D_G_z1:.4f} / {D_G_z2:.4f}",
            flush=True,
        )
        marks.append(time.perf_counter())

print(f"final loss_D {errD.item():.4f} loss_G {errG.item():.4f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / opt.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
