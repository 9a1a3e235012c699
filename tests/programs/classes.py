"""Dataclasses, enums, pickling of __main__ classes, inspect.getsource, warnings with line numbers, globals()."""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import pickle
import sys
import warnings


class Color(enum.Enum):
    RED = 1
    BLUE = RED + 1


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int = dataclasses.field(default=abs(-2))
    tags: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.norm = sum(value * value for value in (self.x, self.y))

    def scaled(self, factor):
        """Scaled."""
        return dataclasses.replace(self, x=self.x * factor)


def where():
    frame = inspect.currentframe().f_back
    return frame.f_code.co_name, frame.f_lineno


def shout(text):
    return text.upper()


points = pickle.loads(pickle.dumps([Point(1), Point(3, tags=["a"])]))
print(points, points[1].scaled(2), points[1].norm, sorted(points, reverse=True)[0])
print(Color.BLUE, pickle.loads(pickle.dumps(Color.RED)) is Color.RED, Point.__annotations__)
print(inspect.getsource(Point.scaled), inspect.getsource(shout), inspect.getdoc(Point.scaled))
for _ in range(2):
    print(where())
    warnings.warn("careful", stacklevel=1)
print(__name__, __file__.rpartition("/")[2], __spec__, __package__, __doc__[:10])
print(sorted(name for name in globals() if not name.startswith("_")))
print(sys.argv[1:], copy.deepcopy(points[0]) == points[0], pickle.loads(pickle.dumps(shout))("loud"))
exec("for i in range(2): print('exec', i)")
print(eval("shout('x')"), [f(2) for f in (lambda v: v + 1, abs)])
