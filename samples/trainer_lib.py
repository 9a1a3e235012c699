"""A small Trainer as many projects have one: the loop lives here, the script only configures it (after minGPT)."""

import time
from collections import defaultdict

import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, config, model, train_dataset):
        self.config = config
        self.train_dataset = train_dataset
        self.callbacks = defaultdict(list)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, betas=(0.9, 0.95))
        self.iter_num = 0
        self.iter_time = 0.0
        self.iter_dt = 0.0
        self.loss = None

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def run(self):
        model, config = self.model, self.config
        train_loader = DataLoader(
            self.train_dataset,
            sampler=torch.utils.data.RandomSampler(self.train_dataset, replacement=True, num_samples=int(1e7)),
            shuffle=False,
            pin_memory=self.device == "cuda",
            batch_size=config.batch,
            num_workers=config.workers,
        )

        model.train()
        self.iter_time = time.time()
        data_iter = iter(train_loader)
        while True:
            batch = next(data_iter)
            batch = [t.to(self.device, non_blocking=True) for t in batch]
            x, y = batch

            logits, self.loss = model(x, y)  # noqa: RUF059

            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()

            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt = tnow - self.iter_time
            self.iter_time = tnow

            if config.max_iters is not None and self.iter_num >= config.max_iters:
                break
