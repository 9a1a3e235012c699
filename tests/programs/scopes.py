"""Closures, nonlocal, global, decorators with arguments, class scopes, name mangling, walrus, star arguments."""

import functools

counter = 0


def count(step=1, *, label="n"):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            global counter
            counter += step
            print(label, counter, function.__name__, function.__doc__)
            return function(*args, **kwargs)

        return wrapper

    return decorate


def make():
    total = 0

    def add(value):
        nonlocal total
        total += value
        return total

    return add


class Account:
    """Private names are mangled."""

    __rate = 3
    limit = __rate * 2

    def __init__(self, start):
        self.__balance = start
        self.__log("open", start)

    def __log(self, *what, **more):
        print("log", *what, more)

    @property
    def balance(self):
        return self.__balance

    @staticmethod
    @count(2, label="static")
    def fee(x):
        """A fee."""
        return x * 0.5

    @classmethod
    def default(cls):
        return cls(cls.__rate)

    def grow(self, times):
        for __i in range(times):
            self.__balance += Account.__rate * __i
        return self

    class __Inner:
        def who(self):
            return type(self).__name__

    def inner(self):
        return self.__Inner().who()


class Child(Account):
    def __init__(self):
        super().__init__(1)
        self.__balance = "mine"

    def both(self):
        return self.__balance, self.balance, __class__.__name__


@count(label="top")
def area(a, b=2, /, *rest, key=4, **others):
    """Area."""
    if (product := a * b) > 5 and rest:
        return product, rest, key, others
    return product


add = make()
print(add(2), add(3), area(1), area(3, 4, 5, key=6, z=7))
print(Account.default().grow(3).balance, Account.fee(3), Account(1).inner(), Account.limit)
print(Child().both(), sorted(vars(Child())))
print((lambda *a, **k: (a, k))(1, *[2, 3], x=4))
match area(2, 3, 9):
    case (product, [first, *_], 4, {}) if product == 6:
        print("matched", product, first)
    case _:
        print("no match")
squares = {n: [m for m in range(n) if m % 2] for n in range(4)}
print(squares, [last := n for n in range(3)], last)
_cga = "the user's own name"
_cga1 = _cga.upper()
print(_cga, _cga1)
