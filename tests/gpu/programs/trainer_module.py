"""The training loop of public_trainer.py, in a module of its own as most projects have it."""

import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, dataset, device, batch_size=32, workers=2):
        self.model, self.device = model.to(device), device
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.loader = DataLoader(
            dataset, batch_size, shuffle=True, num_workers=workers, pin_memory=device == "cuda", drop_last=True
        )
        self.global_step = 0
        self.loss = None

    def training_step(self, batch):
        inputs, labels = batch
        logits = self.model(inputs)
        return {"loss": self.criterion(logits, labels), "logits": logits.detach()}

    def fit(self, max_steps):
        self.model.train()
        while self.global_step < max_steps:
            for batch in self.loader:
                batch = [t.to(self.device, non_blocking=True) for t in batch]
                self.optimizer.zero_grad(set_to_none=True)  # <- first
                out = self.training_step(batch)
                self.loss = out["loss"]
                self.loss.backward()
                self.optimizer.step()  # <- last
                self.global_step += 1
                if self.global_step % 20 == 0:
                    print(f"step {self.global_step} loss {self.loss.item():.6f}")
                if self.global_step >= max_steps:
                    break
        return self.loss.item()
