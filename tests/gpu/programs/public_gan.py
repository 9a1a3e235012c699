"""A GAN step as the examples write it: three .item() calls between its backward passes, two Adams."""

import sys

import torch
from torch import nn, optim

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
netG = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh())
netD = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
netG, netD = netG.to(device), netD.to(device)
criterion = nn.BCEWithLogitsLoss()
capturable = device.type == "cuda"
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999), capturable=capturable)
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999), capturable=capturable)
images = torch.rand(8, 64, 32, device=device) * 2 - 1
ones, zeros = torch.ones(64, device=device), torch.zeros(64, device=device)
history = []

for i in range(steps):
    real = images[i % 8]
    netD.zero_grad()  # <- first
    output = netD(real).view(-1)
    errD_real = criterion(output, ones)
    errD_real.backward()
    D_x = output.mean().item()  # <- culprit

    fake = netG(torch.randn(64, 16, device=device))
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, zeros)
    errD_fake.backward()
    D_G_z1 = output.mean().item()
    optimizerD.step()

    netG.zero_grad()
    output = netD(fake).view(-1)
    errG = criterion(output, ones)
    errG.backward()
    D_G_z2 = output.mean().item()
    optimizerG.step()  # <- last
    history.append((errG.item(), D_x, D_G_z1, D_G_z2))

print(" ".join(f"{sum(column) / steps:.6f}" for column in zip(*history, strict=True)))
