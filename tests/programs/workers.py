"""Processes: a spawned pool and forked ones that use functions and classes of __main__ and of a module beside."""

import multiprocessing as mp
import os

from trainer.helpers import scale


class Task:
    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        total = 0
        for i in range(x):
            total += scale(i, self.n)
        return total


def square(x):
    return x * x


def child(queue):
    for i in range(3):
        queue.put((square(i), os.environ.get("MARK")))


if __name__ == "__main__":
    os.environ["MARK"] = "set"
    for method in ("spawn", "fork"):
        context = mp.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(square, range(4)), pool.map(Task(2), range(4)))
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print([queue.get() for _ in range(3)])
        process.join()
        print(process.exitcode)
