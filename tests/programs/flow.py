"""Every way out of a loop: break, continue, else, return, exceptions, finally; nested; while with conditions that call."""


def search(rows, wanted):
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            if value == wanted:
                return r, c
            if value < 0:
                break
        else:
            print("row", r, "complete")
            continue
        print("row", r, "cut")
    else:
        print("not found")
    return None


def finals(n):
    order = []
    for i in range(n):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            if i == 2:
                raise ValueError(str(i))
            order.append(("body", i))
        except ValueError as error:
            order.append(("except", str(error)))
        else:
            order.append(("else", i))
        finally:
            order.append(("finally", i))
    return order


def early():
    while True:
        try:
            return len("value")
        finally:
            print("finally before return")


def overrides():
    for i in range(5):
        try:
            raise KeyError(i)
        finally:
            if i < 2:
                continue
            break
    return i


def countdown(n):
    while abs(n) > 0:
        n -= 1
        if n == 2:
            continue
    else:
        print("condition false")
    return n


def deep(n):
    for a in range(n):
        for b in range(n):
            for c in range(n):
                for d in range(n):
                    with open(__file__) as stream:
                        try:
                            for e in range(n):
                                while True:
                                    if sum((a, b, c, d, e)) == 4 * n - 5:
                                        return a, b, c, d, e, bool(stream.read(1))
                                    break
                        finally:
                            pass
    return None


def recurse(n):
    for i in range(1):
        return [n, *recurse(n - abs(1))] if n > 0 else []


print(search([[1, 2], [3, -1, 4], [5, 6]], 6), search([[1], [2]], 9))
print(finals(5), early(), overrides(), countdown(5), deep(2), recurse(4))
x = [3, 1, 2]
x[0], x[-1] = x[-1], x[0]
del x[1]
assert len(x) == 2, "length"
print(x, -x[0], not x, x[0] if x else None)
try:
    for i in iter(int, 1):
        if i == 0:
            raise StopIteration("inside")
except StopIteration as stop:
    print("stop", stop)
