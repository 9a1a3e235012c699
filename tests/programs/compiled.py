"""torch.compile, torch.jit.script, torch.fx and functional transforms over functions and modules of the script."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        for _ in range(3):
            y = torch.relu(y) + x
        return y.sum()


@torch.compile(backend="eager", fullgraph=True)
def fused(x):
    y = x * 2
    return y + 1


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x + 1
    return x


def loss(w):
    return (w * w).sum()


net = Net()
x = torch.arange(4.0)
whole = torch.compile(net, backend="eager", fullgraph=True)
for _ in range(12):
    value = whole(x)
print(f"{value.item():.5f}", torch.equal(value, net(x)), fused(x).tolist(), scripted(x, 2).tolist())
print(torch.func.grad(loss)(x).tolist(), torch.func.vmap(loss)(torch.ones(2, 3)).tolist())
print(sorted({node.op for node in torch.fx.symbolic_trace(net).graph.nodes}))
print(torch._dynamo.utils.counters["graph_break"] or "no graph break")
