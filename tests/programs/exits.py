"""sys.exit with a message from inside a loop, atexit handlers, finally blocks, __del__."""

import atexit
import sys

atexit.register(print, "atexit ran")


class Holder:
    def __del__(self):
        print("deleted")


def main():
    holder = Holder()
    for i in range(10):
        try:
            if i == 3:
                sys.exit("stopped at three" if len(sys.argv) == 1 else int(sys.argv[1]))
        finally:
            print("finally", i, holder is not None)


if __name__ == "__main__":
    main()
