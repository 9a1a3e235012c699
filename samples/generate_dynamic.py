"""Sampling from a Llama-shaped model whose key-value cache grows by one row a token: no two steps have equal shapes."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from models import LlamaLayer, RMSNorm, rope_table
from torch import nn


class DynamicCache:
    def __init__(self):
        self.entries = {}

    def update(self, index, k, v):
        if index in self.entries:
            old_k, old_v = self.entries[index]
            k, v = torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        self.entries[index] = (k, v)
        return k, v

    def length(self):
        return self.entries[0][0].size(2) if self.entries else 0


class Llama(nn.Module):
    def __init__(self, vocab, dim, heads, layers, positions):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(LlamaLayer(dim, heads) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        cos, sin = rope_table(positions, dim // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens, cache):
        start = cache.length()
        end = start + tokens.size(1)
        x = self.embed(tokens)
        for index, layer in enumerate(self.layers):

            def attend(q, k, v, index=index):
                k, v = cache.update(index, k, v)
                return F.scaled_dot_product_attention(q, k, v, is_causal=start == 0)

            x = layer(x, self.cos[start:end], self.sin[start:end], attend)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, prompt, max_new_tokens, temperature=0.8, log_every=10):
        cache = DynamicCache()
        idx = prompt
        idx_next = prompt
        marks = []
        for i in range(max_new_tokens):
            logits = self(idx_next, cache)[:, -1] / temperature
            probs = F.softmax(logits.float(), dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
            if i % log_every == 0:
                print(f"token {i:4d}  id {idx_next[0, 0].item()}", flush=True)
                marks.append(time.perf_counter())
        return idx, marks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = Llama(8000, args.dim, args.dim // 64, args.layers, positions=args.prompt + args.steps)
        prompt = torch.randint(0, 8000, (args.batch, args.prompt))
    model = model.to(torch.bfloat16).eval()
    tokens, marks = model.generate(prompt, args.steps, log_every=args.log_every)

    print(f"last tokens {tokens[0, -4:].tolist()}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
