"""Training under bf16 autocast with gradient clipping; the autocast block covers forward and loss only."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(i, 16, 3, padding=1) for i in (3, 16, 16, 16))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in self.convs)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return self.head(self.drop(x.mean((2, 3))))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
images = torch.randn(8, 16, 3, 16, 16, device=device)
labels = torch.randint(0, 10, (8, 16), device=device)

for step in range(steps):
    x, y = images[step % 8], labels[step % 8]
    with torch.autocast(device, dtype=torch.bfloat16):  # <- first
        logits = model(x)
        loss = F.cross_entropy(logits, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- last
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.6f}")

print(f"loss {loss.item():.6f} mean {model.norms[0].running_mean.sum().item():.6f}")
