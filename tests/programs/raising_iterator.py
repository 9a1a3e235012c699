"""The iterator itself raises: no frame of a wrapper may show up between the loop and it."""

import traceback


def items():
    yield 1
    raise LookupError("the source is broken")


def consume():
    for item in items():
        print(item)


try:
    consume()
except LookupError:
    traceback.print_exc()
try:
    for a, b in [(1, 2), (3,)]:
        print(a, b)
except ValueError:
    traceback.print_exc()
import broken_import  # noqa
