"""os._exit from inside a loop: no atexit handler, the given code."""

import atexit
import os
import sys

atexit.register(print, "never")
for i in range(5):
    print("step", i)
    if i == 2:
        sys.stdout.flush()
        os._exit(7)
