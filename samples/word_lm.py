"""An LSTM language model as in the word-level example of old: carried hidden state, hand-written SGD, loss.item()."""

import argparse
import math
import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers = nhid, nlayers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output))
        return nn.functional.log_softmax(decoded.view(-1, decoded.size(-1)), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    """Wraps hidden states in new tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def train(model, criterion, corpus, args):
    model.train()
    total_loss = 0.0
    lr = args.lr
    hidden = model.init_hidden(args.batch)
    marks = [time.perf_counter()]
    for batch, i in enumerate(range(0, corpus.size(0) - 1, args.bptt)):
        data, targets = get_batch(corpus, i, args.bptt)
        # Starting each batch, we detach the hidden state from how it was previously produced.
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()

        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)

        total_loss += loss.item()
        if batch % args.log_every == 0 and batch > 0:
            cur_loss = total_loss / args.log_every
            print(f"batch {batch:4d}  loss {cur_loss:.6f}  ppl {math.exp(min(cur_loss, 20)):.2f}", flush=True)
            total_loss = 0.0
            marks.append(time.perf_counter())
    print(f"final loss {loss.item():.6f}")
    return marks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--bptt", type=int, default=35)
    parser.add_argument("--lr", type=float, default=2.0)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--vocab", type=int, default=1000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1111)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # A made-up corpus whose last batch is shorter than the others, as the last one of a real corpus is.
    rows = (args.steps - 1) * args.bptt + args.bptt // 2 + 1
    corpus = torch.randint(0, args.vocab, (rows, args.batch), device=device)
    model = RNNModel(args.vocab, ninp=200, nhid=200, nlayers=2, dropout=0.2).to(device)

    marks = train(model, nn.NLLLoss(), corpus, args)
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
