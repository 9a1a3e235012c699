"""A loader whose pinning thread never rests: large batches, several workers, deep prefetch."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = (steps + 64) * 64
    dataset = TensorDataset(torch.arange(length), torch.randint(0, 10, (length,)))

    def wide(rows):
        """Half a megabyte a batch, of a size that changes, so that pinned memory is allocated again and again."""
        index = torch.stack([row[0] for row in rows])
        labels = torch.stack([row[1] for row in rows])
        ballast = torch.zeros(1000 + int(index[0]) % 977 * 128)
        return index.float()[:, None].expand(-1, 64).div(length).contiguous(), labels, ballast

    loader = DataLoader(
        dataset, 64, num_workers=2, prefetch_factor=8, pin_memory=device == "cuda", collate_fn=wide, shuffle=False
    )
    layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    for step, (inputs, labels, _ballast) in enumerate(loader):
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()  # <- first
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()  # <- last
        if step + 1 >= steps:
            break
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
