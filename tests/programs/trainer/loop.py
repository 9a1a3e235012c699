"""A Trainer with callbacks, as libraries write them."""

from . import helpers


class Callback:
    def on_step(self, trainer, loss):
        pass


class Printer(Callback):
    def on_step(self, trainer, loss):
        if trainer.step % 5 == 0:
            print(f"step {trainer.step} loss {loss:.6f}")


class Trainer:
    def __init__(self, model, optimizer, loss, callbacks=()):
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.callbacks = [Printer(), *callbacks]
        self.step = 0

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                loss = self.train_step(x, y)
                for callback in self.callbacks:
                    callback.on_step(self, helpers.scale(loss.item(), 1.0))
                self.step += 1
            print("epoch", epoch, "done")
