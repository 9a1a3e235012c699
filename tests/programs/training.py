"""A training script: DataLoader with forked and spawned workers, a Trainer from a package, autograd functions, hooks."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from trainer import Trainer


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        x = torch.zeros(4)
        for j in range(4):
            x[j] = (i % (j + 2)) / 3.0
        return x, (x * x).sum(0, keepdim=True)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for width in (4, 8):
            self.layers.append(nn.Linear(width, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return Double.apply(self.head(x))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.01), nn.MSELoss())
    for workers, context in ((0, None), (1, "fork"), (1, "spawn")):
        loader = DataLoader(Squares(), batch_size=4, num_workers=workers, multiprocessing_context=context)
        trainer.fit(loader, 2)
    with torch.no_grad():
        print(f"{model(torch.ones(1, 4)).item():.6f}", len(repr(model)))


if __name__ == "__main__":
    main()
