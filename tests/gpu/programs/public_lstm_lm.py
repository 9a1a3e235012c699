"""An LSTM language model: hidden state carried from batch to batch, SGD written by hand, loss.item() in every step."""

import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
vocab, bptt, batch = 200, 16, 8
corpus = torch.randint(0, vocab, (steps * bptt + 1, batch), device=device)

encoder = nn.Embedding(vocab, 64).to(device)
cells = nn.ModuleList(nn.LSTMCell(64, 64) for _ in range(2)).to(device)
decoder = nn.Linear(64, vocab).to(device)
model = nn.ModuleList([encoder, cells, decoder])
criterion = nn.CrossEntropyLoss()
lr = 0.5


def repackage(hidden):
    return [tuple(v.detach() for v in pair) for pair in hidden]


def forward(data, hidden):
    outputs = []
    for x in encoder(data):
        for i, cell in enumerate(cells):
            hidden[i] = cell(x, hidden[i])
            x = hidden[i][0]
        outputs.append(x)
    return decoder(torch.stack(outputs)), hidden


hidden = [tuple(torch.zeros(batch, 64, device=device) for _ in range(2)) for _ in cells]
total_loss = 0.0
for i in range(0, corpus.size(0) - 1, bptt):
    data, targets = corpus[i : i + bptt], corpus[i + 1 : i + 1 + bptt].reshape(-1)
    model.zero_grad()  # <- first
    hidden = repackage(hidden)
    output, hidden = forward(data, hidden)
    loss = criterion(output.view(-1, vocab), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)  # <- last
    total_loss += loss.item()

print(f"mean loss {total_loss / steps:.6f}")
