"""async functions, generators, comprehensions, context managers, gathering and cancellation."""

import asyncio


class Scope:
    async def __aenter__(self):
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, kind, value, traceback):
        print("aexit", kind.__name__ if kind else None)
        return kind is KeyError


async def ticks(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def worker(name, n, out):
    for i in range(n):
        await asyncio.sleep(0)
        out.append((name, abs(i)))
    return len(out) > 0


async def main():
    out = []
    done = await asyncio.gather(worker("a", 3, out), worker("b", 2, out))
    print(done, sorted(out))
    async for t in ticks(3):
        print("tick", t)
    else:
        print("ticks over")
    print([t async for t in ticks(3)], {t: [u async for u in ticks(t)] for t in range(2)})
    async with Scope():
        raise KeyError("swallowed")
    task = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")


asyncio.run(main())
