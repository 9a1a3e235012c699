"""A decoding loop that attends over all earlier tokens: the context is one row longer in every step."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
embed = nn.Embedding(100, 64).to(device)
blocks = nn.ModuleList(nn.Linear(64, 192) for _ in range(6)).to(device)
tokens = torch.randint(0, 100, (1, 8), device=device)

with torch.no_grad():
    for _ in range(steps):
        x = embed(tokens)  # <- first
        for block in blocks:
            q, k, v = block(x)[:, None].chunk(3, dim=-1)
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        logits = x[:, -1] @ embed.weight.T
        following = logits.argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)  # <- culprit, last

print(f"last {tokens[0, -5:].tolist()}")
