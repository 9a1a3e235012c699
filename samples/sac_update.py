"""Soft actor-critic updates from a replay buffer on the GPU, after CleanRL: three optimizers, soft target updates."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from models import mlp
from torch import nn, optim

OBS, ACT = 17, 6


class SoftQNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS + ACT, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc3 = nn.Linear(256, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 256), nn.ReLU(), mlp(256, 2, 2 * ACT))

    def get_action(self, x):
        mean, log_std = self.body(x).chunk(2, dim=1)
        std = (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp()
        noise = torch.randn_like(mean)
        y = torch.tanh(mean + std * noise)
        log_prob = -0.5 * noise.pow(2) - std.log() - 0.919 - torch.log(1 - y.pow(2) + 1e-6)
        return y, log_prob.sum(1, keepdim=True)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--gamma", type=float, default=0.99)
parser.add_argument("--tau", type=float, default=0.005)
parser.add_argument("--log-every", type=int, default=10)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

actor = Actor().to(device)
qf1, qf2 = SoftQNetwork().to(device), SoftQNetwork().to(device)
qf1_target, qf2_target = SoftQNetwork().to(device), SoftQNetwork().to(device)
qf1_target.load_state_dict(qf1.state_dict())
qf2_target.load_state_dict(qf2.state_dict())
q_optimizer = optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=1e-3)
actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
log_alpha = torch.zeros(1, requires_grad=True, device=device)
a_optimizer = optim.Adam([log_alpha], lr=1e-3)

size = 10_000
buffer = {
    "obs": torch.randn(size, OBS, device=device),
    "next_obs": torch.randn(size, OBS, device=device),
    "actions": torch.rand(size, ACT, device=device) * 2 - 1,
    "rewards": torch.randn(size, 1, device=device),
    "dones": (torch.rand(size, 1, device=device) < 0.01).float(),
}

marks = []
for global_step in range(args.steps):
    index = torch.randint(0, size, (args.batch,), device=device)
    data = {name: column[index] for name, column in buffer.items()}

    with torch.no_grad():
        alpha = log_alpha.exp()
        next_actions, next_log_pi = actor.get_action(data["next_obs"])
        q_next = torch.min(qf1_target(data["next_obs"], next_actions), qf2_target(data["next_obs"], next_actions))
        q_target = data["rewards"] + (1 - data["dones"]) * args.gamma * (q_next - alpha * next_log_pi)

    qf1_loss = F.mse_loss(qf1(data["obs"], data["actions"]), q_target)
    qf2_loss = F.mse_loss(qf2(data["obs"], data["actions"]), q_target)
    qf_loss = qf1_loss + qf2_loss
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()

    pi, log_pi = actor.get_action(data["obs"])
    min_qf_pi = torch.min(qf1(data["obs"], pi), qf2(data["obs"], pi))
    actor_loss = (alpha * log_pi - min_qf_pi).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = (-log_alpha.exp() * (log_pi.detach() - ACT)).mean()
    a_optimizer.zero_grad()
    alpha_loss.backward()
    a_optimizer.step()

    for q, target in ((qf1, qf1_target), (qf2, qf2_target)):
        for param, target_param in zip(q.parameters(), target.parameters(), strict=True):
            target_param.data.copy_(args.tau * param.data + (1 - args.tau) * target_param.data)

    if global_step % args.log_every == 0:
        print(f"step {global_step:4d}  q {qf_loss.item():.5f}  pi {actor_loss.item():.5f}", flush=True)
        marks.append(time.perf_counter())

print(f"final q loss {qf_loss.item():.5f}  alpha {log_alpha.exp().item():.5f}")
if len(marks) > 1:
    seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
    print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)
