"""Greedy decoding of a Llama-shaped model with a static key-value cache, in the manner of gpt-fast without compile."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from models import LlamaLayer, RMSNorm, rope_table
from torch import nn


class Llama(nn.Module):
    def __init__(self, vocab, dim, heads, layers, positions):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(LlamaLayer(dim, heads) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.heads, self.head_dim, self.positions = heads, dim // heads, positions

    def setup_caches(self, batch):
        """Buffers of full length: every step has the same shapes."""
        weight = self.head.weight
        shape = (len(self.layers), batch, self.heads, self.positions, self.head_dim)
        self.register_buffer("k_cache", weight.new_zeros(shape))
        self.register_buffer("v_cache", weight.new_zeros(shape))
        cos, sin = rope_table(self.positions, self.head_dim)
        self.register_buffer("cos", cos.to(weight))
        self.register_buffer("sin", sin.to(weight))
        ones = torch.ones(self.positions, self.positions, dtype=torch.bool, device=weight.device)
        self.register_buffer("causal", ones.tril())

    def forward(self, tokens, input_pos):
        mask = self.causal[input_pos]
        x = self.embed(tokens)
        for index, layer in enumerate(self.layers):

            def attend(q, k, v, index=index):
                self.k_cache[index].index_copy_(2, input_pos, k)
                self.v_cache[index].index_copy_(2, input_pos, v)
                return F.scaled_dot_product_attention(q, self.k_cache[index], self.v_cache[index], attn_mask=mask)

            x = layer(x, self.cos[input_pos], self.sin[input_pos], attend)
        return self.head(self.norm(x))


def decode_one_token(model, token, input_pos):
    return model(token, input_pos)[:, -1].argmax(-1, keepdim=True)


@torch.inference_mode()
def generate(model, prompt, new_tokens, log_every):
    length = prompt.size(1)
    model.setup_caches(prompt.size(0))
    input_pos = torch.arange(length, device=prompt.device)
    cur_token = decode_one_token(model, prompt, input_pos)
    tokens = [cur_token.clone()]

    marks = []
    input_pos = torch.tensor([length], device=prompt.device)
    for i in range(new_tokens):
        next_token = decode_one_token(model, cur_token, input_pos)
        input_pos += 1
        tokens.append(next_token.clone())
        cur_token = next_token.clone()
        if i % log_every == 0:
            print(f"token {i:4d}  id {cur_token[0, 0].item()}", flush=True)
            marks.append(time.perf_counter())
    return torch.cat(tokens, dim=1), marks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
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
    tokens, marks = generate(model, prompt, args.steps, args.log_every)

    print(f"last tokens {tokens[0, -4:].tolist()}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
