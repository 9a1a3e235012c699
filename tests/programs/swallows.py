"""A retry loop that catches everything, BaseException included."""

import sys

attempts = 0
for outer in range(3):
    try:
        for inner in range(4):
            attempts += 1
            if inner == 2:
                raise SystemExit(5)
    except BaseException as error:
        print("swallowed", type(error).__name__, error.code)
print(attempts)
sys.exit(3)
