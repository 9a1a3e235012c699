"""PPO on 16 CartPole-like environments stepped in NumPy: every rollout step crosses to the CPU and back."""

import argparse
import statistics
import sys
import time
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class CartPoles:
    """`count` poles on carts, one explicit Euler step for all of them at a time."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (count, 4))

    def step(self, action):
        x, v, angle, spin = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        drive = push - 0.05 * turn * np.cos(angle) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * drive, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.state.astype(np.float32), np.ones(len(done), np.float32), done.astype(np.float32)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x, action=None):
        dist = Categorical(logits=self.actor(x), validate_args=False)
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.critic(x).squeeze(-1)


def advantages(rewards, dones, values, last_value):
    result = torch.zeros_like(rewards)
    running = 0.0
    for t in reversed(range(len(rewards))):
        after = last_value if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + 0.99 * after * (1 - dones[t]) - values[t]
        running = delta + 0.99 * 0.95 * (1 - dones[t]) * running
        result[t] = running
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150, help="iterations of one rollout and its update epochs")
    parser.add_argument("--batch", type=int, default=16, help="environments")
    parser.add_argument("--horizon", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    envs = CartPoles(args.batch, args.seed)
    agent = Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    next_obs = torch.tensor(envs.state, dtype=torch.float32, device=device)
    reward_total, marks = 0.0, []

    for iteration in range(args.steps):
        rows = []
        for _ in range(args.horizon):
            with torch.no_grad():
                action, logprob, _, value = agent(next_obs)
            obs_np, reward, done = envs.step(action.cpu().numpy())
            rows.append((next_obs, action, logprob, value, torch.tensor(reward).to(device), torch.tensor(done).to(device)))
            next_obs = torch.tensor(obs_np).to(device)
            reward_total += float(reward.sum() - done.sum())

        obs, actions, logprobs, values, rewards, dones = (torch.stack(column) for column in zip(*rows, strict=True))
        with torch.no_grad():
            adv = advantages(rewards, dones, values, agent(next_obs)[3])
        returns = (adv + values).flatten()
        obs, actions, logprobs, adv = obs.flatten(0, 1), actions.flatten(), logprobs.flatten(), adv.flatten()

        for _ in range(args.epochs):
            _, newlogprob, entropy, newvalue = agent(obs, actions)
            ratio = (newlogprob - logprobs).exp()
            norm = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(-norm * ratio, -norm * ratio.clamp(0.8, 1.2)).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * (newvalue - returns).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()

        if iteration % args.log_every == 0:
            print(f"iteration {iteration:3d}  loss {loss.item():.5f}  reward {reward_total:.0f}", flush=True)
            marks.append(time.perf_counter())

    print(f"final loss {loss.item():.5f}")
    if len(marks) > 1:
        seconds = statistics.median(b - a for a, b in pairwise(marks)) / args.log_every
        print(f"{seconds * 1e3:.3f} ms per step", file=sys.stderr)


if __name__ == "__main__":
    main()
