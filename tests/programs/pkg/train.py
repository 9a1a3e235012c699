"""Run as `python -m pkg.train`: relative imports, __package__, __spec__."""

import pickle
import sys

from . import util
from .util import twice


class Thing:
    value = util.twice(4)


def main():
    for i in range(3):
        print(i, twice(i))
    print(__name__, __package__, __spec__.name, sys.argv[1:], pickle.loads(pickle.dumps(Thing())).value)
    raise SystemExit(4)


if __name__ == "__main__":
    main()
