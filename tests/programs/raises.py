"""An uncaught exception out of nested calls and loops, chained: its traceback must be the plain one."""

import traceback


def parse(values):
    total = 0
    for value in values:
        with open(__file__):
            total += int(
                value
                + ""
            )
    return total


def run(batches):
    for batch in batches:
        try:
            print(parse(batch))
        except ValueError as error:
            raise RuntimeError(f"bad batch {batch}") from error


class Loader:
    def __iter__(self):
        yield ["1", "2"]
        yield ["3", "x"]


try:
    run([["7"], ["y"]])
except RuntimeError:
    traceback.print_exc()
try:
    next(iter([]))
except StopIteration:
    print(traceback.format_exc())
run(Loader())
