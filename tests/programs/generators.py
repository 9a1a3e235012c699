"""Generators that yield inside loops, delegate, receive values, are closed early and clean up."""

import contextlib


def numbers(limit):
    try:
        for n in range(limit):
            received = yield n * n
            if received is not None:
                print("received", received)
    finally:
        print("numbers closed")


def chained(limit):
    total = yield from numbers(limit)
    yield ("total", total)


for value in chained(3):
    print(value)

it = numbers(10)
print(next(it), it.send("hello"), next(it))
it.close()


@contextlib.contextmanager
def scope(name):
    print("enter", name)
    try:
        yield len(name)
    finally:
        print("leave", name)


for name in ("a", "bb"):
    with scope(name) as size:
        if size == 2:
            break
        print("size", size)
else:
    print("not reached")
print(sum(x for x in numbers(4) if x % 2), [y for y in numbers(2)])
